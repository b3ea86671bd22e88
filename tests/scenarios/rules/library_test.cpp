// The library of scenarios: every file reads and means what it says, and together they reach what
// must be reached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>

#include "scenarios/documents/layout.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"
#include "tests/scenarios/rules/library_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string all_text(const ReadResult& read) {
  std::string text;
  for (const ScenarioError& error : read.errors) text += error.text() + "\n";
  return text;
}

// Kinds whose layouts are known without reading data.
bool has_layouts(const Scenario& s) {
  return s.data.kind == DataKind::lengths || s.data.kind == DataKind::distribution;
}

// The fate of a microbatch, or under full_iteration of a step.
enum class Way { warm_up, replayed, fallback };

struct Visit {
  std::int64_t step = 0, microbatch = 0;
  MicrobatchLengths lengths;
  std::int64_t slots = 0;
  Way way = Way::warm_up;
};

// All microbatches of a run on one rank, in order.
std::vector<Visit> visits(const Scenario& s) {
  std::vector<Visit> list;
  const std::int64_t largest = std::ranges::max(s.cuda_graph.max_packed_seqs);
  for (std::int64_t step = 0; step < s.training.steps; ++step) {
    const std::size_t first = list.size();
    for (std::int64_t m = 0; m < s.training.microbatches_at(step); ++m) {
      const MicrobatchLengths lengths = microbatch_lengths(s, step, m);
      const std::int64_t slots = slots_in_use(s.data, lengths);
      const bool eager = step < s.cuda_graph.warmup_steps || !with_graphs(s);
      list.push_back({step, m, lengths, slots,
                      eager              ? Way::warm_up
                      : slots <= largest ? Way::replayed
                                         : Way::fallback});
    }
    const auto falls_back = [](const Visit& visit) { return visit.way == Way::fallback; };
    const bool all = s.cuda_graph.impl == GraphImpl::full_iteration;
    if (!all || std::none_of(list.begin() + first, list.end(), falls_back)) continue;
    for (std::size_t i = first; i < list.size(); ++i) list[i].way = Way::fallback;
  }
  return list;
}

bool is_captured(const Scenario& s, const Scenario::Block& block) {
  if (s.cuda_graph.modules.empty()) return true;
  for (int i = block.first; i < block.first + block.count; ++i) {
    const char symbol = s.model.pattern[i];
    const GraphModule module = symbol == 'M'   ? GraphModule::mamba
                               : symbol == '*' ? GraphModule::attn
                               : symbol == 'E' ? GraphModule::moe
                                               : GraphModule::mlp;
    if (holds(s.cuda_graph.modules, module)) return true;
    if (symbol == 'E' && holds(s.cuda_graph.modules, GraphModule::moe_router)) return true;
  }
  return false;
}

std::int64_t evaluations(const Scenario& s) {
  return s.training.eval_every == 0 ? 0 : s.training.steps / s.training.eval_every;
}

std::int64_t count(const Scenario& s, Way way) {
  std::set<std::pair<std::int64_t, std::int64_t>> ways;
  const bool by_step = s.cuda_graph.impl == GraphImpl::full_iteration;
  for (const Visit& visit : visits(s)) {
    if (visit.way == way) ways.insert({visit.step, by_step ? 0 : visit.microbatch});
  }
  return std::ssize(ways);
}

// Launches: forward and backward of each region and microbatch; one a step and one an evaluation
// under full_iteration.
std::int64_t graph_replays(const Scenario& s) {
  const std::int64_t replayed = count(s, Way::replayed);
  if (s.cuda_graph.impl == GraphImpl::full_iteration) return replayed + evaluations(s);
  const auto blocks = s.blocks();
  return 2 * replayed *
         std::ranges::count_if(blocks, [&](const auto& block) { return is_captured(s, block); });
}

// In the order of a step: a forward, and a backward as soon as `in_flight` are out.
std::int64_t max_outstanding(const Scenario& s) {
  std::int64_t most = 0;
  for (std::int64_t step = 0; step < s.training.steps; ++step)
    most = std::max(most, s.training.microbatches_at(step));
  if (pieces_of(s) == 1) return std::min(most, s.training.in_flight);
  std::int64_t open = 0, deepest = 0;  // A chunk of a microbatch is one.
  for (const ScheduledPass& pass : pass_order(stage_schedule(s, 0, most)))
    deepest = std::max(deepest, open += pass.forward ? 1 : -1);
  return deepest;
}

TEST(Library, EveryFileReadsAndIsCalledLikeItsScenario) {
  EXPECT_GE(library().size(), 18u);
  for (const fs::path& file : library_files()) {
    const ReadResult read = read_scenario_file(file.string());
    EXPECT_TRUE(read.ok()) << all_text(read);
    EXPECT_EQ(read.scenario.name, file.stem().string());
    EXPECT_GE(read.scenario.description.size(), 20u) << file;
    EXPECT_EQ(read.scenario.expect.verdict, ExpectedVerdict::holds) << file;
    // cuDNN has no fp32 kernel (rule L05).
    const bool cudnn = read.scenario.model.core_attention == CoreAttention::cudnn;
    const bool fp8 = multiplies_fp8(read.scenario);
    EXPECT_TRUE(cudnn || fp8 || holds(read.scenario.numerics, Numerics::fp32)) << file;
  }
}

TEST(Library, RefusedFilesAreRefusedByTheRuleTheyName) {
  const auto files = files_in(kLibrary / "refused");
  EXPECT_GE(files.size(), 3u);
  for (const fs::path& file : files) {
    const ReadResult read = read_scenario_file(file.string());
    EXPECT_EQ(read.scenario.name, file.stem().string());
    EXPECT_EQ(read.scenario.expect.verdict, ExpectedVerdict::refused) << file;
    EXPECT_EQ(read.rule(), read.scenario.expect.error) << file << all_text(read);
    EXPECT_NE(read.rule(), "none") << file;
  }
}

TEST(Library, StaysSmallEnoughToRunInEveryBuild) {
  for (const fs::path& file : library_files()) {
    const Scenario s = read_scenario_file(file.string()).scenario;
    if (file.parent_path().filename() == "sizes") {
      EXPECT_LE(s.data.pack_length * s.model.hidden, 300'000) << s.name;
      EXPECT_LE(s.data.pack_length * s.training.microbatches_at(0) * s.training.steps, 160'000)
          << s.name;
      continue;
    }
    // Three of cuDNN's length classes. Other layers take longer packs if they are narrow.
    const bool attends = s.model.pattern.find('*') != std::string::npos;
    EXPECT_LE(s.data.pack_length, attends ? 192 : 4200) << s.name;
    EXPECT_LE(s.data.pack_length * s.model.hidden, 2 * 192 * 48) << s.name;
    EXPECT_LE(s.model.hidden, 48) << s.name;
    EXPECT_LE(s.training.steps, s.data.pack_length <= 16 ? 12 : 6) << s.name;
  }
}

TEST(Library, CountersAreThoseOfTheResult) {
  for (const Scenario& s : library()) {
    EXPECT_FALSE(s.expect.counters.empty()) << s.name;
    for (const auto& [counter, rule] : s.expect.counters) {
      EXPECT_TRUE(holds(counter_names(), to_text(counter))) << s.name << " " << to_text(counter);
      EXPECT_TRUE(!rule.same_as || holds(counter_names(), to_text(*rule.same_as))) << s.name;
    }
  }
}

// The definitions of the counters, computed from documents and schedule, against what the files
// expect.
TEST(Library, ExpectedCountersFollowFromTheLayouts) {
  int compared = 0;
  for (const Scenario& s : library()) {
    const auto compare = [&](Counter name, std::int64_t value) {
      const auto found = s.expect.counters.find(name);
      if (found == s.expect.counters.end()) return;
      ++compared;
      const Scenario::CounterRule& rule = found->second;
      EXPECT_GE(value, rule.min.value_or(value)) << s.name << " " << to_text(name);
      EXPECT_LE(value, rule.max.value_or(value)) << s.name << " " << to_text(name);
    };
    compare(Counter::max_outstanding, max_outstanding(s));
    const std::int64_t stages = s.parallel.pipeline;
    compare(Counter::evaluations, stages * evaluations(s));
    compare(Counter::recaptures, stages * std::ssize(s.training.recapture_at));
    if (!has_layouts(s)) continue;
    compare(Counter::eager_fallbacks, stages * count(s, Way::fallback));
    compare(Counter::graph_replays, graph_replays(s));
  }
  EXPECT_GE(compared, 60);
}

TEST(Library, FirstExampleOfTheSchemaLaunchesTwentyGraphs) {
  const auto found = std::ranges::find(library(), "packed-fallback-mix", &Scenario::name);
  ASSERT_NE(found, library().end());
  EXPECT_EQ(graph_replays(*found), 20);
  EXPECT_EQ(count(*found, Way::fallback), 1);
}

// Coverage, computed from what was read.
using Trait = std::function<bool(const Scenario&)>;

Trait any_replayed(std::function<bool(const Scenario&, const Visit&)> holds) {
  return [holds](const Scenario& s) {
    return has_layouts(s) && std::ranges::any_of(visits(s), [&](const Visit& visit) {
             return visit.way == Way::replayed && holds(s, visit);
           });
  };
}

// A replayed microbatch and the one of the same number in the next step, replayed too.
Trait any_replayed_pair(std::function<bool(const Scenario&, const Visit&, const Visit&)> holds) {
  return [holds](const Scenario& s) {
    if (!has_layouts(s)) return false;
    const auto list = visits(s);
    for (const Visit& a : list) {
      for (const Visit& b : list) {
        const bool next = b.step == a.step + 1 && b.microbatch == a.microbatch;
        if (next && a.way == Way::replayed && b.way == Way::replayed && holds(s, a, b)) return true;
      }
    }
    return false;
  };
}

std::int64_t tokens(const Visit& visit) {
  return std::reduce(visit.lengths.begin(), visit.lengths.end());
}

Trait has_length(std::function<std::int64_t(const Scenario&)> length, char layer) {
  return any_replayed([=](const Scenario& s, const Visit& visit) {
    return has_layer(s, layer) && lockstep::holds(visit.lengths, length(s));
  });
}

Trait has_slots(std::int64_t beyond_capacity) {
  return [=](const Scenario& s) {
    return has_layouts(s) && std::ranges::any_of(visits(s), [&](const Visit& visit) {
             return visit.way != Way::warm_up &&
                    visit.slots == std::ranges::max(s.cuda_graph.max_packed_seqs) + beyond_capacity;
           });
  };
}

Trait has_empty_document(std::function<bool(const MicrobatchLengths&, std::size_t)> place) {
  return any_replayed([=](const Scenario&, const Visit& visit) {
    for (std::size_t i = 0; i < visit.lengths.size(); ++i) {
      if (visit.lengths[i] == 0 && tokens(visit) > 0 && place(visit.lengths, i)) return true;
    }
    return false;
  });
}

bool has_fallback_between_replays(const Scenario& s) {
  if (!has_layouts(s)) return false;
  std::vector<Way> ways;
  for (const Visit& visit : visits(s)) ways.push_back(visit.way);
  const std::vector<Way> wanted{Way::replayed, Way::fallback, Way::replayed};
  return std::ranges::search(ways, wanted).begin() != ways.end();
}

bool uses_two_buckets(const Scenario& s) {
  if (!has_layouts(s)) return false;
  std::set<std::int64_t> used;
  for (const Visit& visit : visits(s)) {
    if (visit.way != Way::replayed) continue;
    used.insert(*std::ranges::lower_bound(s.cuda_graph.max_packed_seqs, visit.slots));
  }
  return used.size() >= 2;
}

Trait captures(std::vector<GraphModule> modules) {
  return
      [=](const Scenario& s) { return with_partial_graphs(s) && s.cuda_graph.modules == modules; };
}

// A layer of experts for which this holds of its settings.
Trait experts(bool (*are)(const Scenario::Model::Moe&)) {
  return [=](const Scenario& s) { return has_layer(s, 'E') && are(s.model.moe); };
}
Trait captures_of_experts(GraphModule module) {
  return [=](const Scenario& s) {
    return with_partial_graphs(s) && holds(s.cuda_graph.modules, module);
  };
}

bool has_evaluation_between_replays(const Scenario& s) {
  const std::int64_t first = s.training.eval_every;  // The step after the first evaluation.
  return first > s.cuda_graph.warmup_steps && first < s.training.steps &&
         count(s, Way::replayed) > 0;
}

const std::vector<std::pair<std::string, Trait>>& coverage() {
  using enum GraphModule;
  static const std::vector<std::pair<std::string, Trait>> list{
      {"document of 1 token", has_length([](auto&) { return 1; }, 'M')},
      {"document of 2 tokens", has_length([](auto&) { return 2; }, 'M')},
      {"conv width - 1", has_length([](auto& s) { return s.model.mamba.conv_width - 1; }, 'M')},
      {"conv width + 1", has_length([](auto& s) { return s.model.mamba.conv_width + 1; }, 'M')},
      {"chunk - 1", has_length([](auto& s) { return s.model.mamba.chunk - 1; }, 'M')},
      {"chunk", has_length([](auto& s) { return s.model.mamba.chunk; }, 'M')},
      {"chunk + 1", has_length([](auto& s) { return s.model.mamba.chunk + 1; }, 'M')},
      {"whole pack", has_length([](auto& s) { return s.data.pack_length; }, 'M')},
      {"empty document first", has_empty_document([](auto&, std::size_t i) { return i == 0; })},
      {"empty document in the middle", has_empty_document([](auto& lengths, std::size_t i) {
         return i > 0 && i + 1 < lengths.size();
       })},
      {"empty document last", has_empty_document([](auto& lengths, std::size_t i) {
         return i > 0 && i + 1 == lengths.size();
       })},
      {"capacity - 1", has_slots(-1)},
      {"capacity", has_slots(0)},
      {"capacity + 1", has_slots(1)},
      {"other layout, same tokens", any_replayed_pair([](auto&, const Visit& a, const Visit& b) {
         return tokens(a) == tokens(b) && tokens(a) > 0 && a.lengths != b.lengths;
       })},
      {"large pack, then small", any_replayed_pair([](auto& s, const Visit& a, const Visit& b) {
         return tokens(a) == s.data.pack_length && tokens(b) > 0 &&
                tokens(b) <= s.data.pack_length / 8;
       })},
      {"more than 64 layers", [](auto& s) { return s.model.pattern.size() > 64; }},
      {"more than 255 documents with dropout",
       [](auto& s) {
         const auto is_large = [](const StepLengths& step) {
           return std::ranges::any_of(step, [](auto& list) { return list.size() > 255; });
         };
         return s.model.dropout.millionths > 0 && std::ranges::any_of(s.data.documents, is_large);
       }},
      {"vocabulary over 16 bits", [](auto& s) { return s.model.vocab > 65'536; }},
      {"recapture under a limit",
       [](auto& s) {
         return s.cuda_graph.graph_memory_limit > 0 && !s.training.recapture_at.empty();
       }},
      {"in_flight 1",
       [](auto& s) { return s.training.in_flight == 1 && s.training.microbatches > 1; }},
      {"in_flight 2", [](auto& s) { return s.training.in_flight == 2; }},
      {"in_flight 3", [](auto& s) { return s.training.in_flight == 3; }},
      {"chunks in eager passes",
       [](auto& s) { return s.parallel.chunks > 1 && s.cuda_graph.impl == GraphImpl::none; }},
      {"chunks in graphs of parts",
       [](auto& s) { return s.parallel.chunks > 2 && !s.cuda_graph.modules.empty(); }},
      {"chunks in the graph of a step",
       [](auto& s) {
         return s.parallel.chunks > 1 && s.cuda_graph.impl == GraphImpl::full_iteration;
       }},
      {"chunks beside offloading",
       [](auto& s) { return s.parallel.chunks > 1 && !s.offload.modules.empty(); }},
      {"chunks on shards of several ranks",
       [](auto& s) { return s.parallel.chunks > 1 && with_sharding(s) && s.parallel.data > 1; }},
      {"chunks with copies in graphs",
       [](auto& s) { return s.parallel.chunks > 1 && s.offload.captured; }},
      {"stages with copies in graphs",
       [](auto& s) { return s.parallel.pipeline > 1 && s.offload.captured; }},
      {"stages in eager passes",
       [](auto& s) { return s.parallel.pipeline > 2 && s.cuda_graph.impl == GraphImpl::none; }},
      {"stages with chunks in graphs of parts",
       [](auto& s) {
         return s.parallel.pipeline > 1 && s.parallel.chunks > 1 && !s.cuda_graph.modules.empty();
       }},
      {"stages in the graph of a step",
       [](auto& s) {
         return s.parallel.pipeline > 1 && s.cuda_graph.impl == GraphImpl::full_iteration;
       }},
      {"stages in processes",
       [](auto& s) { return s.parallel.pipeline > 1 && s.parallel.transport == Transport::shm; }},
      {"stages with a tied weight and several ranks",
       [](auto& s) {
         return s.parallel.pipeline > 1 && s.model.tied_embedding && s.parallel.data > 1;
       }},
      {"stages of which each gathers its weights",
       [](auto& s) {
         return s.parallel.pipeline > 1 && s.fsdp.strategy == Sharding::optim_grads_params;
       }},
      {"stages that save and load within a step",
       [](auto& s) {
         return s.parallel.pipeline > 1 &&
                std::ranges::any_of(s.training.resume_at,
                                    [](const auto& one) { return one.microbatch > 0; });
       }},
      {"stages beside offloading",
       [](auto& s) { return s.parallel.pipeline > 1 && !s.offload.modules.empty(); }},
      {"stages that keep more than those before, with a fraction of the rest",
       [](auto& s) {
         return s.parallel.pipeline > 2 && s.parallel.chunks > 1 && s.offload.delta_bytes > 0 &&
                s.offload.fraction.millionths < 1'000'000;
       }},
      {"experts over ranks in eager passes",
       [](auto& s) { return expert_ranks(s) > 1 && s.cuda_graph.impl == GraphImpl::none; }},
      {"experts over ranks beside graphs of their router",
       [](auto& s) {
         return expert_ranks(s) > 1 && holds(s.cuda_graph.modules, GraphModule::moe_router);
       }},
      {"experts over ranks in processes",
       [](auto& s) { return expert_ranks(s) > 1 && s.parallel.transport == Transport::shm; }},
      {"experts over ranks in graphs of the experts",
       [](auto& s) { return captures_exchange(s) && holds(s.cuda_graph.modules, moe); }},
      {"experts over ranks in graphs of whole layers",
       [](auto& s) {
         return captures_exchange(s) && s.cuda_graph.impl == GraphImpl::partial &&
                s.cuda_graph.modules.empty();
       }},
      {"experts over ranks in graphs of steps",
       [](auto& s) {
         return captures_exchange(s) && s.cuda_graph.impl == GraphImpl::full_iteration;
       }},
      {"experts over ranks of stages",
       [](auto& s) { return expert_ranks(s) > 1 && s.parallel.pipeline > 1; }},
      {"experts over ranks whose sizes the host reads",
       [](auto& s) { return expert_ranks(s) > 1 && s.model.moe.host_sync; }},
      {"experts over ranks with drop-and-pad",
       [](auto& s) {
         return expert_ranks(s) > 1 && s.model.moe.capacity_factor && s.model.moe.pad_to_capacity;
       }},
      {"replicas of experts that gather their weights",
       [](auto& s) {
         return expert_ranks(s) > 1 && expert_replicas(s) > 2 &&
                s.fsdp.strategy == Sharding::optim_grads_params;
       }},
      {"replicas of experts whose ranks fold for each source",
       [](auto& s) {
         return expert_ranks(s) > 1 && expert_replicas(s) > 1 &&
                s.fsdp.strategy == Sharding::no_shard;
       }},
      {"experts over ranks computed again",
       [](auto& s) { return expert_ranks(s) > 1 && holds(s.model.recompute, Recompute::moe); }},
      {"experts over ranks in fp8 with exponents of the rows at hand",
       [](auto& s) {
         return expert_ranks(s) > 1 && expert_replicas(s) > 1 && multiplies_fp8(s) &&
                s.fp8.recipe == Fp8Recipe::current && s.fp8.param_gather;
       }},
      {"experts over ranks in fp8 with exponents of earlier steps",
       [](auto& s) {
         return expert_ranks(s) > 1 && multiplies_fp8(s) && s.fp8.recipe == Fp8Recipe::delayed;
       }},
      {"experts over ranks that save and load",
       [](auto& s) { return expert_ranks(s) > 1 && !s.training.resume_at.empty(); }},
      {"chunks with a tied weight",
       [](auto& s) { return s.parallel.chunks > 1 && s.model.tied_embedding; }},
      {"gpipe with changing counts",
       [](auto& s) {
         return s.parallel.schedule == PipelineSchedule::gpipe &&
                s.training.change_microbatches_at.size() > 1;
       }},
      {"slots used again within a step",
       [](auto& s) { return s.training.microbatches > 2 * s.training.in_flight; }},
      {"attn alone", captures({attn})},
      {"mlp alone", captures({mlp})},
      {"mlp of a transformer layer whose attention is eager",
       [](auto& s) {
         return captures({mlp})(s) && s.model.pattern.find("*-") != std::string::npos;
       }},
      {"mamba alone", captures({mamba})},
      {"modules together", captures({attn, mlp, mamba})},
      {"whole layers", with_whole_layers},
      {"full iteration", [](auto& s) { return s.cuda_graph.impl == GraphImpl::full_iteration; }},
      {"full iteration with evaluation",
       [](auto& s) {
         return s.cuda_graph.impl == GraphImpl::full_iteration && s.training.eval_every > 0;
       }},
      {"fallback of a full iteration",
       [](auto& s) {
         return s.cuda_graph.impl == GraphImpl::full_iteration && count(s, Way::fallback) > 0;
       }},
      {"no graphs", [](auto& s) { return !with_graphs(s); }},
      {"warm-up of no step",
       [](auto& s) { return with_graphs(s) && s.cuda_graph.warmup_steps == 0; }},
      {"fallback between replays", has_fallback_between_replays},
      {"evaluation between replays", has_evaluation_between_replays},
      {"re-capture", [](auto& s) { return !s.training.recapture_at.empty(); }},
      {"resumed between steps",
       [](auto& s) {
         return std::ranges::any_of(s.training.resume_at,
                                    [](auto& one) { return one.microbatch == 0; });
       }},
      {"resumed within a step",
       [](auto& s) {
         return std::ranges::any_of(s.training.resume_at,
                                    [](auto& one) { return one.microbatch > 0; });
       }},
      {"stages with chunks resumed within a step",
       [](auto& s) {
         return s.parallel.pipeline > 1 && s.parallel.chunks > 1 &&
                std::ranges::any_of(s.training.resume_at,
                                    [](auto& one) { return one.microbatch > 0; });
       }},
      {"resumed on other ranks",
       [](auto& s) {
         return std::ranges::any_of(s.training.resume_at, [](auto& one) { return one.data > 0; });
       }},
      {"dropout in graphs",
       [](auto& s) { return with_graphs(s) && s.model.dropout.millionths > 0; }},
      {"masked microbatch", [](auto& s) { return !s.data.mask.microbatches.empty(); }},
      {"mask prefix", [](auto& s) { return s.data.mask.prefix > 0; }},
      {"mask rate", [](auto& s) { return s.data.mask.rate.millionths > 0; }},
      {"mask roles", [](auto& s) { return s.data.kind == DataKind::jsonl; }},
      {"piece that looks on", [](auto& s) { return !s.data.mask.document_end; }},
      {"GQA",
       [](auto& s) {
         return has_layer(s, '*') && s.model.attention.kv_heads < s.model.attention.heads &&
                s.model.attention.kv_heads > 1;
       }},
      {"MHA",
       [](auto& s) {
         return has_layer(s, '*') && s.model.attention.kv_heads == s.model.attention.heads &&
                s.model.attention.heads > 1;
       }},
      {"tied embedding", [](auto& s) { return s.model.tied_embedding; }},
      {"untied embedding", [](auto& s) { return !s.model.tied_embedding; }},
      {"swiglu",
       [](auto& s) {
         return has_layer(s, '-') && s.model.mlp.activation == MlpActivation::swiglu;
       }},
      {"gaps", [](auto& s) { return s.data.gaps > 0; }},
      {"align", [](auto& s) { return s.data.align > 1; }},
      {"append_dummy_seq",
       [](auto& s) { return has_layouts(s) && s.data.tail == Tail::append_dummy_seq; }},
      {"microbatch without a document",
       any_replayed([](auto&, const Visit& v) { return v.lengths.empty(); })},
      {"microbatch of empty documents",
       any_replayed([](auto&, const Visit& v) { return !v.lengths.empty() && tokens(v) == 0; })},
      {"changing microbatch count",
       [](auto& s) { return !s.training.change_microbatches_at.empty(); }},
      {"several buckets", uses_two_buckets},
      {"several heads and groups of M",
       [](auto& s) {
         return has_layer(s, 'M') && s.model.mamba.groups > 1 &&
                s.model.mamba.d_inner / s.model.mamba.head_dim > s.model.mamba.groups;
       }},
      {"hybrid M-M*-", [](auto& s) { return s.model.pattern.find("M-M*-") != std::string::npos; }},
      {"long pattern", [](auto& s) { return s.model.pattern.size() >= 10; }},
      {"linear schedule with warm-up",
       [](auto& s) {
         return s.training.optimizer.schedule == LrSchedule::linear &&
                s.training.optimizer.lr_warmup > 0;
       }},
      {"cosine schedule with warm-up",
       [](auto& s) {
         return s.training.optimizer.schedule == LrSchedule::cosine &&
                s.training.optimizer.lr_warmup > 0;
       }},
      {"clip off", [](auto& s) { return s.training.optimizer.clip == 0; }},
      {"distribution measured",
       [](auto& s) {
         return s.data.kind == DataKind::distribution &&
                s.data.distribution.shape == Shape::measured;
       }},
      {"distribution published",
       [](auto& s) {
         return s.data.kind == DataKind::distribution &&
                s.data.distribution.shape == Shape::published;
       }},
      {"distribution of a histogram",
       [](auto& s) { return !s.data.distribution.histogram.empty(); }},
      {"text", [](auto& s) { return s.data.kind == DataKind::text; }},
      {"softmax router", experts([](auto& m) { return m.router == Router::softmax; })},
      {"sigmoid router", experts([](auto& m) { return m.router == Router::sigmoid; })},
      {"expert bias", experts([](auto& m) { return m.expert_bias; })},
      {"shared expert", experts([](auto& m) { return m.shared_hidden > 0; })},
      {"capacity below the mean",
       experts([](auto& m) { return m.capacity_factor && m.capacity_factor->value() < 1; })},
      {"capacity without padding",
       experts([](auto& m) { return m.capacity_factor && !m.pad_to_capacity; })},
      {"dropless", experts([](auto& m) { return !m.capacity_factor; })},
      {"host sync", experts([](auto& m) { return m.host_sync; })},
      {"router losses",
       experts([](auto& m) { return m.aux_loss.millionths > 0 && m.z_loss.millionths > 0; })},
      {"top-1", experts([](auto& m) { return m.top_k == 1; })},
      {"module moe", captures_of_experts(moe)},
      {"moe_router alone", captures({moe_router})},
      {"module moe_preprocess", captures_of_experts(moe_preprocess)},
      {"copies as nodes of partial graphs", [](auto& s) { return s.offload.captured; }},
      {"shared memory", [](auto& s) { return s.cuda_graph.shared_memory; }},
      {"shared memory of three chunks in groups",
       [](auto& s) {
         return s.cuda_graph.shared_memory && s.parallel.chunks > 2 && s.parallel.group > 1 &&
                !s.training.change_microbatches_at.empty();
       }},
      {"shared memory of stages with chunks, evaluations by graphs",
       [](auto& s) {
         return s.cuda_graph.shared_memory && s.parallel.pipeline > 1 && s.parallel.chunks > 1 &&
                s.cuda_graph.evaluation == GraphEvaluation::replay;
       }},
      {"shared memory with evaluations by graphs, three in flight",
       [](auto& s) {
         return s.cuda_graph.shared_memory && s.training.in_flight > 2 &&
                s.cuda_graph.evaluation == GraphEvaluation::replay;
       }},
      {"shared memory beside captured copies on ranks",
       [](auto& s) {
         return s.cuda_graph.shared_memory && s.offload.captured && s.parallel.data > 1;
       }},
      {"shared memory with a count that grows",
       [](auto& s) {
         return s.cuda_graph.shared_memory && !s.training.change_microbatches_at.empty();
       }},
      {"passes of captures on shards",
       [](auto& s) { return s.cuda_graph.capture_passes > 0 && with_sharding(s); }},
      {"passes of captures beside captured copies",
       [](auto& s) { return s.cuda_graph.capture_passes > 0 && s.offload.captured; }},
      {"passes of captures in the middle of a step",
       [](auto& s) {
         return s.cuda_graph.capture_passes > 0 && s.cuda_graph.graph_memory_limit > 0;
       }},
      {"chunks under a limit of graphs",
       [](auto& s) { return s.cuda_graph.graph_memory_limit > 0 && s.parallel.chunks > 1; }},
      {"stages under a limit of graphs",
       [](auto& s) { return s.cuda_graph.graph_memory_limit > 0 && s.parallel.pipeline > 1; }},
      {"received rows of experts on the host",
       [](auto& s) {
         return s.parallel.expert > 1 && holds(s.offload.modules, OffloadModule::expert_fc1);
       }},
      {"experts over ranks in shared memory without padding",
       [](auto& s) {
         return s.parallel.expert > 1 && s.cuda_graph.shared_memory && !s.model.moe.pad_to_capacity;
       }},
      {"copies as nodes beside eager ones",
       [](auto& s) { return s.offload.captured && s.offload.delay_until_cuda_graph; }},
      {"experts in whole layers",
       [](auto& s) { return has_layer(s, 'E') && with_whole_layers(s); }},
      {"experts in graphs without padding",
       [](auto& s) {
         return has_layer(s, 'E') && with_whole_layers(s) && !s.model.moe.pad_to_capacity;
       }},
      {"experts in a full iteration",
       [](auto& s) { return has_layer(s, 'E') && s.cuda_graph.impl == GraphImpl::full_iteration; }},
      {"widths that are no multiples",
       [](auto& s) { return s.model.hidden % 8 != 0 && s.data.pack_length % 16 != 0; }},
  };
  return list;
}

TEST(Library, EveryFeatureIsReached) {
  for (const auto& [name, feature] : coverage())
    EXPECT_TRUE(std::ranges::any_of(library(), feature)) << name;
}

// Each feature is one that a scenario can lack; else reaching it would say nothing.
TEST(Library, EveryFeatureIsLackingSomewhere) {
  for (const auto& [name, feature] : coverage())
    EXPECT_FALSE(std::ranges::all_of(library(), feature)) << name;
}

}  // namespace
}  // namespace lockstep
