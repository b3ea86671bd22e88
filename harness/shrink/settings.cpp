// Features and constants back to their defaults, graphs off or fewer.
#include <algorithm>
#include <cstdint>

#include "harness/shrink/rules.h"

namespace lockstep {
namespace {

using Candidates = std::vector<Scenario>;

template <class Get>
Setting back(const char* key, Get get) {
  return {key, [get](Scenario& s) {
            Scenario plain;
            get(s) = get(plain);
          }};
}

// All of them, halves, and so on down to single ones.
Candidates settings_back(const Scenario& s) {
  Candidates candidates;
  for (const auto& [begin, end] : removals(settings().size())) {
    Scenario one = s;
    for (std::size_t i = begin; i < end; ++i) settings()[i].reset(one);
    candidates.push_back(one);
  }
  return candidates;
}

Candidates no_graphs(const Scenario& s) {
  if (s.cuda_graph.impl == GraphImpl::none) return {};
  Scenario one = s;
  one.cuda_graph.impl = GraphImpl::none;
  return {one};
}

Candidates partial_graphs(const Scenario& s) {
  if (s.cuda_graph.impl != GraphImpl::full_iteration) return {};
  Scenario one = s;
  one.cuda_graph.impl = GraphImpl::partial;
  return {one};
}

// Modules that capture something of the pattern.
std::vector<GraphModule> captured(const Scenario& s) {
  if (!s.cuda_graph.modules.empty()) return s.cuda_graph.modules;
  std::vector<GraphModule> modules;
  const auto note = [&](char symbol, GraphModule module) {
    if (s.model.pattern.find(symbol) != std::string::npos) modules.push_back(module);
  };
  note('*', GraphModule::attn);
  note('-', GraphModule::mlp);
  note('E', GraphModule::moe);
  note('M', GraphModule::mamba);
  return modules;
}

Candidates fewer_modules(const Scenario& s) {
  if (s.cuda_graph.impl != GraphImpl::partial) return {};
  const std::vector<GraphModule> modules = captured(s);
  Candidates candidates;
  if (modules.size() == 1 && !s.cuda_graph.modules.empty()) {  // One kind of layer: the whole of it is the default.
    candidates.push_back(s);
    candidates.back().cuda_graph.modules.clear();
    if (captured(candidates.back()).size() > 1) candidates.clear();
    return candidates;
  }
  for (const auto& range : removals(modules.size())) {
    std::vector<GraphModule> left = without(modules, range);
    if (left.empty()) continue;
    candidates.push_back(s);
    candidates.back().cuda_graph.modules = std::move(left);
  }
  return candidates;
}

Candidates fewer_buckets(const Scenario& s) {
  Candidates candidates;
  for (const auto& range : removals(s.cuda_graph.max_packed_seqs.size())) {
    std::vector<std::int64_t> left = without(s.cuda_graph.max_packed_seqs, range);
    if (left.empty()) continue;
    candidates.push_back(s);
    candidates.back().cuda_graph.max_packed_seqs = std::move(left);
  }
  return candidates;
}

// Items out of lists, and numbers of features that must stay.
Candidates less_of_a_feature(const Scenario& s) {
  Candidates candidates;
  const auto propose = [&](auto edit) {
    candidates.push_back(s);
    edit(candidates.back());
  };
  for (const Size& size : sizes()) {
    if (size.key.rfind("data.", 0) != 0 || size.key == "data.pack_length") continue;
    Scenario here = s;
    for (const std::int64_t value : smaller(size.at(here), size.least)) {
      propose([&](Scenario& one) { size.at(one) = value; });
    }
  }
  for (const auto& range : removals(s.training.recapture_at.size())) {
    propose([&](Scenario& one) { one.training.recapture_at = without(one.training.recapture_at, range); });
  }
  for (const auto& range : removals(s.training.change_microbatches_at.size())) {
    propose([&](Scenario& one) {
      one.training.change_microbatches_at = without(one.training.change_microbatches_at, range);
    });
  }
  for (const auto& range : removals(s.data.mask.microbatches.size())) {
    propose([&](Scenario& one) { one.data.mask.microbatches = without(one.data.mask.microbatches, range); });
  }
  for (const auto& range : removals(s.offload.modules.size())) {
    propose([&](Scenario& one) { one.offload.modules = without(one.offload.modules, range); });
  }
  for (const std::int64_t steps : smaller(s.cuda_graph.warmup_steps, 1)) {
    propose([&](Scenario& one) { one.cuda_graph.warmup_steps = steps; });
  }
  for (std::size_t i = 0; i < s.training.change_microbatches_at.size(); ++i) {
    const std::int64_t changed = s.training.change_microbatches_at[i].microbatches;
    propose([&](Scenario& one) {  // From the start.
      one.training.microbatches = changed;
      one.training.change_microbatches_at = without(one.training.change_microbatches_at, {i, i + 1});
    });
    for (const std::int64_t count : smaller(changed, 1)) {
      propose([&](Scenario& one) { one.training.change_microbatches_at[i].microbatches = count; });
    }
  }
  return candidates;
}

// Where the default does not fail: a small seed, or the first that 32 bits do not hold.
Candidates smaller_seeds(const Scenario& s) {
  Candidates candidates;
  for (const std::int64_t seed : {std::int64_t{2}, std::int64_t{3}, std::int64_t{1} << 32}) {
    if (seed >= s.training.seed) break;
    candidates.push_back(s);
    candidates.back().training.seed = seed;
  }
  return candidates;
}

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> table{
      back(
          "numerics", [](Scenario & s) -> auto& { return s.numerics; }),
      back(
          "model.tied_embedding", [](Scenario & s) -> auto& { return s.model.tied_embedding; }),
      back(
          "model.norm_eps", [](Scenario & s) -> auto& { return s.model.norm_eps; }),
      back(
          "model.attention.rope_base", [](Scenario & s) -> auto& { return s.model.attention.rope_base; }),
      back(
          "model.mlp.activation", [](Scenario & s) -> auto& { return s.model.mlp.activation; }),
      back(
          "model.moe", [](Scenario & s) -> auto& { return s.model.moe; }),
      back(
          "model.moe.expert_bias", [](Scenario & s) -> auto& { return s.model.moe.expert_bias; }),
      back(
          "model.moe.router", [](Scenario & s) -> auto& { return s.model.moe.router; }),
      back(
          "model.moe.host_sync", [](Scenario & s) -> auto& { return s.model.moe.host_sync; }),
      back(
          "model.moe.aux_loss", [](Scenario & s) -> auto& { return s.model.moe.aux_loss; }),
      back(
          "model.moe.z_loss", [](Scenario & s) -> auto& { return s.model.moe.z_loss; }),
      back(
          "model.dropout", [](Scenario & s) -> auto& { return s.model.dropout; }),
      back(
          "model.recompute", [](Scenario & s) -> auto& { return s.model.recompute; }),
      back(
          "model.core_attention", [](Scenario & s) -> auto& { return s.model.core_attention; }),
      back(
          "data.distribution", [](Scenario & s) -> auto& { return s.data.distribution; }),
      back(
          "data.distribution.shape", [](Scenario & s) -> auto& { return s.data.distribution.shape; }),
      back(
          "data.distribution.empty", [](Scenario & s) -> auto& { return s.data.distribution.empty; }),
      back(
          "data.distribution.seed", [](Scenario & s) -> auto& { return s.data.distribution.seed; }),
      back(
          "data.mask", [](Scenario & s) -> auto& { return s.data.mask; }),
      back(
          "data.mask.document_end", [](Scenario & s) -> auto& { return s.data.mask.document_end; }),
      back(
          "data.mask.prefix", [](Scenario & s) -> auto& { return s.data.mask.prefix; }),
      back(
          "data.mask.rate", [](Scenario & s) -> auto& { return s.data.mask.rate; }),
      back(
          "data.mask.microbatches", [](Scenario & s) -> auto& { return s.data.mask.microbatches; }),
      back(
          "data.mask.roles", [](Scenario & s) -> auto& { return s.data.mask.roles; }),
      back(
          "data.tail", [](Scenario & s) -> auto& { return s.data.tail; }),
      back(
          "data.align", [](Scenario & s) -> auto& { return s.data.align; }),
      back(
          "data.gaps", [](Scenario & s) -> auto& { return s.data.gaps; }),
      back(
          "training.optimizer.lr", [](Scenario & s) -> auto& { return s.training.optimizer.lr; }),
      back(
          "training.optimizer.min_lr", [](Scenario & s) -> auto& { return s.training.optimizer.min_lr; }),
      back(
          "training.optimizer.schedule", [](Scenario & s) -> auto& { return s.training.optimizer.schedule; }),
      back(
          "training.optimizer.lr_warmup", [](Scenario & s) -> auto& { return s.training.optimizer.lr_warmup; }),
      {"training.optimizer.decay_steps", [](Scenario& s) { s.training.optimizer.decay_steps = s.training.steps; }},
      back(
          "training.optimizer.weight_decay", [](Scenario & s) -> auto& { return s.training.optimizer.weight_decay; }),
      {"training.optimizer.betas",
       [](Scenario& s) {
         s.training.optimizer.beta1 = Scenario().training.optimizer.beta1;
         s.training.optimizer.beta2 = Scenario().training.optimizer.beta2;
       }},
      back(
          "training.optimizer.eps", [](Scenario & s) -> auto& { return s.training.optimizer.eps; }),
      back(
          "training.optimizer.clip", [](Scenario & s) -> auto& { return s.training.optimizer.clip; }),
      back(
          "training.seed", [](Scenario & s) -> auto& { return s.training.seed; }),
      back(
          "training.eval_every", [](Scenario & s) -> auto& { return s.training.eval_every; }),
      back(
          "training.recapture_at", [](Scenario & s) -> auto& { return s.training.recapture_at; }),
      back(
          "training.change_microbatches_at", [](Scenario & s) -> auto& { return s.training.change_microbatches_at; }),
      back(
          "cuda_graph.warmup_steps", [](Scenario & s) -> auto& { return s.cuda_graph.warmup_steps; }),
      back(
          "cuda_graph.max_packed_seqs", [](Scenario & s) -> auto& { return s.cuda_graph.max_packed_seqs; }),
      back(
          "cuda_graph.graph_memory_limit", [](Scenario & s) -> auto& { return s.cuda_graph.graph_memory_limit; }),
      back(
          "offload", [](Scenario & s) -> auto& { return s.offload; }),
      back(
          "offload.fraction", [](Scenario & s) -> auto& { return s.offload.fraction; }),
      back(
          "offload.min_bytes", [](Scenario & s) -> auto& { return s.offload.min_bytes; }),
      back(
          "offload.max_inflight", [](Scenario & s) -> auto& { return s.offload.max_inflight; }),
      back(
          "offload.delay_until_cuda_graph", [](Scenario & s) -> auto& { return s.offload.delay_until_cuda_graph; }),
      back(
          "offload.pool_slack", [](Scenario & s) -> auto& { return s.offload.pool_slack; }),
      back(
          "fsdp", [](Scenario & s) -> auto& { return s.fsdp; }),
      back(
          "fsdp.strategy", [](Scenario & s) -> auto& { return s.fsdp.strategy; }),
      back(
          "fsdp.prefetch", [](Scenario & s) -> auto& { return s.fsdp.prefetch; }),
      back(
          "fsdp.bucket_bytes", [](Scenario & s) -> auto& { return s.fsdp.bucket_bytes; }),
      back(
          "parallel", [](Scenario & s) -> auto& { return s.parallel; }),
      back(
          "parallel.transport", [](Scenario & s) -> auto& { return s.parallel.transport; }),
      back(
          "checker.hazards", [](Scenario & s) -> auto& { return s.checker.hazards; }),
      back(
          "checker.poison", [](Scenario & s) -> auto& { return s.checker.poison; }),
      back(
          "checker.delays", [](Scenario & s) -> auto& { return s.checker.delays; }),
      back(
          "checker.schedule", [](Scenario & s) -> auto& { return s.checker.schedule; }),
      back(
          "expect.counters", [](Scenario & s) -> auto& { return s.expect.counters; }),
  };
  return table;
}

ShrinkRule settings_rule() { return {"settings back to their defaults", settings_back}; }

std::vector<ShrinkRule> shrink_setting_rules() {
  return {settings_rule(),
          {"no graphs", no_graphs},
          {"partial graphs", partial_graphs},
          {"fewer graph modules", fewer_modules},
          {"fewer buckets", fewer_buckets},
          {"less of a feature", less_of_a_feature},
          {"a smaller seed", smaller_seeds}};
}

}  // namespace lockstep
