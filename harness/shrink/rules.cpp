#include "harness/shrink/rules.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "harness/expect/expectations.h"
#include "scenarios/by_one_rank.h"
#include "scenarios/documents/layout.h"
#include "scenarios/fp8.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"
#include "scenarios/rules/offload_modules.h"

namespace lockstep {
namespace {

void drop_homeless(const std::string& pattern, std::vector<GraphModule>& modules) {
  std::erase_if(modules, [&](GraphModule module) {
    return pattern.find(layer_of(module)) == std::string::npos;
  });
}
void drop_homeless(const std::string& pattern, std::vector<OffloadModule>& modules) {
  std::erase_if(modules, [&](OffloadModule module) {
    return std::none_of(pattern.begin(), pattern.end(),
                        [&](char symbol) { return has_module(symbol, module); });
  });
}

// In one microbatch.
std::int64_t most_documents(const Scenario& s) {
  std::int64_t most = 0;
  for (const StepLengths& step : s.data.documents) {
    for (const MicrobatchLengths& list : step) most = std::max(most, std::ssize(list));
  }
  return most;
}

// Layers must be there, and none that is implied may lack (rules L47, L48).
void settle_original_inputs(Scenario& s) {
  std::vector<Fp8Layer>& saved = s.fp8.save_original_input;
  std::erase_if(saved, [&](Fp8Layer layer) { return !has_fp8_layer(s.model, layer); });
  for (const Fp8Layer layer : implied_original_inputs(s.model)) {
    if (!holds(saved, layer)) saved.push_back(layer);
  }
  std::sort(saved.begin(), saved.end());
}

// Nothing is gathered without shards (L49), and weights that come and go have no cache but of
// gathered codes (L50).
void settle_gathered_codes(Scenario& s) {
  if (s.fsdp.strategy == Sharding::no_shard) s.fp8.param_gather = false;
  if (!default_weight_cache(s)) s.fp8.weight_cache = false;
}

// Nothing is to be cut where nothing is longer than a pack.
void settle_long_documents(Scenario::Data& d) {
  if (d.kind != DataKind::lengths || d.long_documents != LongDocuments::truncate) return;
  std::int64_t longest = 0;
  for (const StepLengths& step : d.documents) {
    for (const MicrobatchLengths& list : step) {
      for (const std::int64_t length : list) longest = std::max(longest, length);
    }
  }
  if (longest <= d.pack_length) d.long_documents = LongDocuments::error;
}

// Chunks that have blocks, in an order for so many, and the depth of that order.
void settle_chunks(Scenario& s) {
  Scenario::Parallel& p = s.parallel;
  const std::int64_t most = std::max<std::int64_t>(1, std::ssize(s.blocks()) / p.pipeline);
  p.chunks = std::min(p.chunks, most);
  constexpr auto kOneChunk = PipelineSchedule::one_forward_one_backward;
  if (p.chunks == 1 && p.schedule == PipelineSchedule::interleaved) p.schedule = kOneChunk;
  if (p.chunks > 1 && p.schedule == kOneChunk) p.schedule = PipelineSchedule::interleaved;
  if (p.chunks == 1) p.group = p.pipeline;
  if (p.pipeline == 1) p.group = std::min(p.group, fewest_microbatches(s.training));
  if (depth_follows(s)) s.training.in_flight = scheduled_depth(s);
}

// Units that cover the blocks, and nothing of what is not sharded.
void settle_sharding(Scenario& s) {
  const Scenario plain;
  if (!with_sharding(s)) {
    const Reduction reduction = s.fsdp.reduction;
    s.fsdp = plain.fsdp;
    if (with_reduction(s)) s.fsdp.reduction = reduction;
  }
  if (s.fsdp.unit_is_list) {
    std::int64_t left = std::ssize(s.blocks());
    for (std::int64_t& unit : s.fsdp.unit) left -= unit = std::min(unit, left);
    std::erase(s.fsdp.unit, 0);
    if (left > 0) s.fsdp.unit.push_back(left);
  }
  std::int64_t& apart = s.parallel.expert;
  while (s.parallel.data % apart != 0 || s.model.moe.experts % apart != 0) --apart;
  if (with_sharding(s) && with_partial_graphs(s)) s.fsdp.double_buffer = true;
  if (ranks_of_run(s) == 1 && s.parallel.transport == Transport::local)
    s.parallel.transport = Transport::automatic;
  std::erase_if(s.checker.delays, [&](const Scenario::Delay& delay) {
    const bool exchange =
        delay.stream == DelayStream::gather || delay.stream == DelayStream::reduce;
    return exchange && !with_reduction(s);
  });
  for (Scenario::Delay& delay : s.checker.delays) {
    if (delay.rank && *delay.rank >= ranks_of_run(s)) delay.rank = ranks_of_run(s) - 1;
  }
}

// Layers in the graphs of all buckets.
std::int64_t captured_layers(const Scenario& s) {
  std::int64_t layers = 0;
  for (const Scenario::Block& block : s.blocks()) layers += std::ssize(captured_symbols(s, block));
  layers *= s.cuda_graph.impl == GraphImpl::full_iteration ? s.training.microbatches
                                                           : s.training.in_flight;
  return layers * std::ssize(s.cuda_graph.max_packed_seqs);
}

// A limit goes with what it is a limit of: a candidate that captures less is proposed with as much
// less of it too.
ShrinkRule with_limits(const ShrinkRule& rule) {
  return {rule.name, [rule](const Scenario& s) {
            std::vector<Scenario> candidates = rule.candidates(s);
            const std::int64_t limit = s.cuda_graph.graph_memory_limit, layers = captured_layers(s);
            if (limit == 0 || layers == 0) return candidates;
            std::vector<Scenario> all;
            for (const Scenario& candidate : candidates) {
              all.push_back(candidate);
              const std::int64_t left = captured_layers(settled(candidate));
              const std::int64_t less = std::max<std::int64_t>(limit / layers * left, 1);
              if (left == 0 || less >= limit || candidate.cuda_graph.graph_memory_limit != limit)
                continue;
              all.push_back(candidate);
              all.back().cuda_graph.graph_memory_limit = less;
            }
            return all;
          }};
}

}  // namespace

// Resumes that the steps, microbatches and ranks still allow.
static void settle_resumes(Scenario& s) {
  const bool shards =
      s.fsdp.strategy == Sharding::optim_grads || s.fsdp.strategy == Sharding::optim_grads_params;
  std::vector<Scenario::Resume> list;
  for (Scenario::Resume one : s.training.resume_at) {
    if (!shards || one.data == s.parallel.data) one.data = 0;
    if (one.data != 0 && !divides_microbatches(s, one.data)) one.data = 0;
    if (!shards || one.microbatch % s.parallel.data != 0) one.microbatch = 0;
    const bool in_the_run =
        one.step < s.training.steps && one.microbatch < global_microbatches(s, one.step);
    const Scenario::Resume before = list.empty() ? Scenario::Resume{} : list.back();
    const bool later =
        std::pair(one.step, one.microbatch) > std::pair(before.step, before.microbatch);
    if (in_the_run && later) list.push_back(one);
  }
  s.training.resume_at = list;
}

Scenario settled(Scenario s) {
  Scenario::Training& t = s.training;
  const Scenario plain;
  std::erase_if(t.change_microbatches_at,
                [&](const auto& change) { return change.step >= t.steps; });
  settle_chunks(s);
  if (!depth_follows(s)) t.in_flight = std::min(t.in_flight, fewest_microbatches(t));
  t.eval_every = std::min(t.eval_every, t.steps);
  t.optimizer.lr_warmup = std::min(t.optimizer.lr_warmup, t.steps);
  t.optimizer.min_lr = std::min(t.optimizer.min_lr, t.optimizer.lr);
  std::erase_if(s.data.mask.microbatches,
                [&](std::int64_t m) { return m >= most_microbatches(t) * s.parallel.data; });
  settle_long_documents(s.data);
  settle_original_inputs(s);
  settle_gathered_codes(s);
  if (lists_bf16_or_fp8(s)) s.data.pack_length = (s.data.pack_length + 15) / 16 * 16;  // L03.

  Scenario::CudaGraph& g = s.cuda_graph;
  if (g.impl == GraphImpl::none) {
    // Without effect, but for the capacity where documents go beyond it: eager passes keep their
    // metadata by it too.
    const std::vector<std::int64_t> capacity = std::exchange(g, plain.cuda_graph).max_packed_seqs;
    if (most_documents(s) > capacity.back()) g.max_packed_seqs = {capacity.back()};
    g.impl = GraphImpl::none;
    t.recapture_at.clear();
  }
  if (g.max_seqlen >= s.data.pack_length) g.max_seqlen.reset();
  if (g.impl != GraphImpl::partial || t.eval_every == 0) g.evaluation = GraphEvaluation::eager;
  if (g.impl != GraphImpl::partial) g.capture_passes = 0;
  if (g.impl != GraphImpl::partial) g.shared_memory = false;
  g.warmup_steps = std::min(g.warmup_steps, t.steps - 1);
  if (g.impl == GraphImpl::none) g.warmup_steps = plain.cuda_graph.warmup_steps;
  std::erase_if(t.recapture_at,
                [&](std::int64_t step) { return step >= t.steps || step <= g.warmup_steps; });
  if (g.impl != GraphImpl::partial) g.modules.clear();
  // Keys of layers that the pattern lacks are without effect.
  const auto lacks = [&](char symbol) { return s.model.pattern.find(symbol) == std::string::npos; };
  if (lacks('M')) s.model.mamba = plain.model.mamba;
  if (lacks('*')) s.model.attention = plain.model.attention;
  if (lacks('-') && lacks('E')) s.model.mlp = plain.model.mlp;
  if (lacks('E')) s.model.moe = plain.model.moe;
  drop_homeless(s.model.pattern, g.modules);
  drop_homeless(s.model.pattern, s.offload.modules);
  std::erase_if(s.model.recompute, [&](Recompute module) {
    return layer_of(module) != '\0' && lacks(layer_of(module));
  });
  const auto& modules = s.offload.modules;
  const bool delays = g.impl == GraphImpl::partial &&
                      std::any_of(modules.begin(), modules.end(), [](OffloadModule module) {
                        return offload_row(module).kept == Kept::experts;
                      });
  if (!delays) s.offload.delay_until_cuda_graph = false;
  if (!captures_copies(s)) s.offload.captured = false;
  settle_sharding(s);
  settle_resumes(s);
  return s;
}

std::vector<std::pair<std::size_t, std::size_t>> removals(std::size_t n) {
  std::vector<std::pair<std::size_t, std::size_t>> list;
  for (std::size_t size = n; size > 0; size /= 2) {
    for (std::size_t begin = 0; begin < n; begin += size)
      list.emplace_back(begin, std::min(n, begin + size));
  }
  return list;
}

std::vector<std::int64_t> smaller(std::int64_t value, std::int64_t least) {
  std::vector<std::int64_t> list;
  for (std::int64_t less = value - least; less > 0; less /= 2) list.push_back(value - less);
  return list;
}

// Features before sizes: in a small scenario the last difference often hangs on a feature that a
// larger one of the same bug does without.
static std::vector<ShrinkRule> ordered_rules(const std::vector<ShrinkRule>& early) {
  std::vector<ShrinkRule> list;
  for (const auto& subject :
       {early, shrink_training_rules(), shrink_rank_rules(), shrink_setting_rules(),
        shrink_document_rules(), shrink_model_rules()}) {
    std::transform(subject.begin(), subject.end(), std::back_inserter(list), with_limits);
  }
  return list;
}

const std::vector<ShrinkRule>& shrink_rules(Early early) {
  static const std::vector<ShrinkRule> usual = ordered_rules({}), few_documents = [] {
    std::vector<ShrinkRule> first = shrink_training_rules();
    for (const ShrinkRule& rule : fewer_documents_rules()) first.push_back(rule);
    return ordered_rules(first);
  }();
  return early == Early::documents ? few_documents : usual;
}

}  // namespace lockstep
