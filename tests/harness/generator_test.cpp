#include "harness/generator.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "scenarios/documents.h"
#include "scenarios/reader.h"

namespace lockstep {
namespace {

Scenario generate(std::uint64_t seed) {
  Choices choices(seed);
  return generate_scenario(choices);
}

TEST(Generator, MakesOnlyLegalScenariosThatAreBuilt) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Scenario s = generate(seed);
    const std::vector<ScenarioError> illegal = check_legality(s);
    ASSERT_TRUE(illegal.empty()) << "seed " << seed << ": " << illegal.front().text() << "\n" << to_yaml(s);
    const std::vector<ScenarioError> unbuilt = check_built(s);
    ASSERT_TRUE(unbuilt.empty()) << "seed " << seed << ": " << unbuilt.front().text();
  }
}

TEST(Generator, ReplaysItsChoices) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Choices first(seed);
    const std::string want = canonical_form(generate_scenario(first));
    Choices second(first.taken());
    EXPECT_EQ(canonical_form(generate_scenario(second)), want) << "seed " << seed;
    EXPECT_EQ(second.taken(), first.taken());
  }
}

// Any edit of the sequence is a legal scenario too: what a shrinker relies on.
TEST(Generator, StaysLegalWhenItsChoicesAreEdited) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Choices first(seed);
    generate_scenario(first);
    std::vector<std::uint64_t> edited = first.taken();
    const std::size_t at = static_cast<std::size_t>(seed * 7) % edited.size();
    switch (seed % 3) {
      case 0:
        edited.resize(at);
        break;
      case 1:
        edited.erase(edited.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      default:
        edited[at] += 1 + seed;
    }
    Choices second(edited);
    const Scenario s = generate_scenario(second);
    const std::vector<ScenarioError> errors = check_legality(s);
    EXPECT_TRUE(errors.empty()) << "seed " << seed << ": " << errors.front().text() << "\n" << to_yaml(s);
  }
}

// Every feature, and every boundary that tests are for, is drawn often enough to meet the others.
TEST(Generator, DrawsEveryFeatureAndBoundary) {
  constexpr int kCases = 3000;
  std::map<std::string, int> seen;
  const auto note = [&](const char* feature, bool present) { seen[feature] += present; };
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    const Scenario s = generate(seed);
    const Scenario::Model& m = s.model;
    note("mamba", m.pattern.find('M') != std::string::npos);
    note("attention", m.pattern.find('*') != std::string::npos);
    note("mlp", m.pattern.find('-') != std::string::npos);
    note("a block of two", m.pattern.find("*-") != std::string::npos);
    note("grouped queries", m.attention.heads > m.attention.kv_heads);
    note("several groups", m.mamba.groups > 1);
    note("dropout", m.dropout.millionths > 0);
    note("tied embedding", m.tied_embedding);
    note("swiglu", m.mlp.activation == MlpActivation::swiglu);
    note("gaps", s.data.gaps > 0);
    note("align", s.data.align > 1);
    note("tail as a slot", s.data.tail == Tail::append_dummy_seq);
    note("masked prefix", s.data.mask.prefix > 0);
    note("masked at random", s.data.mask.rate.millionths > 0);
    note("masked microbatch", !s.data.mask.microbatches.empty());
    note("no graphs", s.cuda_graph.impl == GraphImpl::none);
    note("partial graphs", s.cuda_graph.impl == GraphImpl::partial);
    note("full iteration", s.cuda_graph.impl == GraphImpl::full_iteration);
    for (const GraphModule module : s.cuda_graph.modules) note(to_text(module), true);
    note("two modules", s.cuda_graph.modules.size() > 1);
    note("buckets", s.cuda_graph.max_packed_seqs.size() > 1);
    note("no warm-up", s.cuda_graph.warmup_steps == 0);
    note("long warm-up", s.cuda_graph.warmup_steps > 1);
    note("evaluation", s.training.eval_every > 0);
    note("recapture", !s.training.recapture_at.empty());
    note("changing microbatches", !s.training.change_microbatches_at.empty());
    note("one in flight", s.training.in_flight == 1);
    note("three in flight", s.training.in_flight >= 3);
    std::set<std::int64_t> lengths;
    std::int64_t least = 1000;
    for (const StepLengths& step : s.data.documents) {
      for (const MicrobatchLengths& list : step) {
        lengths.insert(list.begin(), list.end());
        least = std::min<std::int64_t>(least, static_cast<std::int64_t>(list.size()));
      }
    }
    note("empty document", lengths.contains(0));
    note("one token", lengths.contains(1));
    note("two tokens", lengths.contains(2));
    note("conv width - 1", lengths.contains(m.mamba.conv_width - 1));
    note("conv width", lengths.contains(m.mamba.conv_width));
    note("conv width + 1", lengths.contains(m.mamba.conv_width + 1));
    note("chunk - 1", lengths.contains(m.mamba.chunk - 1));
    note("chunk", lengths.contains(m.mamba.chunk));
    note("chunk + 1", lengths.contains(m.mamba.chunk + 1));
    note("a full pack", lengths.contains(s.data.pack_length));
    note("no document", least == 0);
    const auto data = open_data(s);
    std::set<std::int64_t> over;
    for (std::int64_t step = 0; step < s.training.steps; ++step) {
      for (const Microbatch& b : data->training(step).microbatches) {
        over.insert(slots_in_use(s.data, b) - s.cuda_graph.max_packed_seqs.back());
      }
    }
    note("capacity - 1", over.contains(-1));
    note("capacity", over.contains(0));
    note("capacity + 1", over.contains(1));
  }
  for (const auto& [feature, count] : seen) EXPECT_GE(count, kCases / 100) << feature;
}

}  // namespace
}  // namespace lockstep
