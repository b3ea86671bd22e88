// Features and constants back to their defaults, graphs off or fewer.
#include <algorithm>
#include <cstdint>

#include "harness/shrink/rules.h"
#include "scenarios/schema/schema.h"

namespace lockstep {
namespace {

using Candidates = std::vector<Scenario>;

// Puts a key, or all keys of a section, back to their defaults.
std::function<void(Scenario&)> back(const std::string& path) {
  std::vector<const Key*> keys;
  for (const Key& key : schema()) {
    if (key.path == path || key.path.rfind(path + ".", 0) == 0) keys.push_back(&key);
  }
  return [keys](Scenario& s) {
    for (const Key* key : keys) key->copy(Scenario(), s);
  };
}

// Resets all of them, then halves, and so on down to single ones.
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
  // One kind of layer: the whole of it is the default.
  if (modules.size() == 1 && !s.cuda_graph.modules.empty()) {
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

// The experts' buffer as it is by default, where other settings of experts must stay.
Candidates plain_capacity(const Scenario& s) {
  const Scenario::Model::Moe plain;
  Candidates candidates(2, s);
  candidates[0].model.moe.capacity_factor = plain.capacity_factor;
  candidates[0].model.moe.pad_to_capacity = plain.pad_to_capacity;
  candidates[1].model.moe.capacity_factor = plain.capacity_factor;
  return candidates;
}

// Items out of lists, and numbers of features that must stay.
Candidates less_of_a_feature(const Scenario& s) {
  Candidates candidates = plain_capacity(s);
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
    propose([&](Scenario& one) {
      one.training.recapture_at = without(one.training.recapture_at, range);
    });
  }
  for (const auto& range : removals(s.training.change_microbatches_at.size())) {
    propose([&](Scenario& one) {
      one.training.change_microbatches_at = without(one.training.change_microbatches_at, range);
    });
  }
  for (const auto& range : removals(s.training.resume_at.size())) {
    propose(
        [&](Scenario& one) { one.training.resume_at = without(one.training.resume_at, range); });
  }
  for (std::size_t i = 0; i < s.training.resume_at.size(); ++i) {
    propose([&](Scenario& one) { one.training.resume_at[i].data = 0; });
    propose([&](Scenario& one) { one.training.resume_at[i].microbatch = 0; });
    for (const std::int64_t step : smaller(s.training.resume_at[i].step, 0)) {
      propose([&](Scenario& one) { one.training.resume_at[i].step = step; });
    }
  }
  for (const auto& range : removals(s.data.mask.microbatches.size())) {
    propose([&](Scenario& one) {
      one.data.mask.microbatches = without(one.data.mask.microbatches, range);
    });
  }
  for (const auto& range : removals(s.model.recompute.size())) {
    propose([&](Scenario& one) { one.model.recompute = without(one.model.recompute, range); });
  }
  for (const auto& range : removals(s.offload.modules.size())) {
    propose([&](Scenario& one) { one.offload.modules = without(one.offload.modules, range); });
  }
  for (const std::int64_t steps : smaller(s.cuda_graph.warmup_steps, 1)) {
    propose([&](Scenario& one) { one.cuda_graph.warmup_steps = steps; });
  }
  for (const std::int64_t longest : smaller(s.cuda_graph.max_seqlen.value_or(1), 1)) {
    propose([&](Scenario& one) { one.cuda_graph.max_seqlen = longest; });
  }
  for (std::size_t i = 0; i < s.training.change_microbatches_at.size(); ++i) {
    const std::int64_t changed = s.training.change_microbatches_at[i].microbatches;
    propose([&](Scenario& one) {  // From the start.
      one.training.microbatches = changed;
      one.training.change_microbatches_at =
          without(one.training.change_microbatches_at, {i, i + 1});
    });
    for (const std::int64_t count : smaller(changed, 1)) {
      propose([&](Scenario& one) { one.training.change_microbatches_at[i].microbatches = count; });
    }
  }
  return candidates;
}

// If the default does not fail: a small seed, or the first that 32 bits do not hold.
Candidates smaller_seeds(const Scenario& s) {
  Candidates candidates;
  for (const std::int64_t seed : {std::int64_t{2}, std::int64_t{3}, std::int64_t{1} << 32}) {
    if (seed >= s.training.seed) break;
    candidates.push_back(s);
    candidates.back().training.seed = seed;
  }
  return candidates;
}

// Every key that is a feature or a constant, not a size, and the sections that are one feature
// together.
constexpr const char* kSettings[] = {"numerics",
                                     "fp8",
                                     "model.tied_embedding",
                                     "model.norm_eps",
                                     "model.attention.rope_base",
                                     "model.mlp.activation",
                                     "model.moe",
                                     "model.moe.expert_bias",
                                     "model.moe.router",
                                     "model.moe.host_sync",
                                     "model.moe.aux_loss",
                                     "model.moe.z_loss",
                                     "model.dropout",
                                     "model.recompute",
                                     "model.core_attention",
                                     "data.distribution",
                                     "data.distribution.shape",
                                     "data.distribution.empty",
                                     "data.distribution.seed",
                                     "data.mask",
                                     "data.mask.document_end",
                                     "data.mask.prefix",
                                     "data.mask.rate",
                                     "data.mask.microbatches",
                                     "data.mask.roles",
                                     "data.tail",
                                     "data.align",
                                     "data.gaps",
                                     "training.optimizer.lr",
                                     "training.optimizer.min_lr",
                                     "training.optimizer.schedule",
                                     "training.optimizer.lr_warmup",
                                     "training.optimizer.decay_steps",
                                     "training.optimizer.weight_decay",
                                     "training.optimizer.betas",
                                     "training.optimizer.eps",
                                     "training.optimizer.clip",
                                     "training.seed",
                                     "training.eval_every",
                                     "training.recapture_at",
                                     "training.change_microbatches_at",
                                     "training.resume_at",
                                     "cuda_graph.warmup_steps",
                                     "cuda_graph.max_packed_seqs",
                                     "cuda_graph.graph_memory_limit",
                                     "cuda_graph.max_seqlen",
                                     "cuda_graph.evaluation",
                                     "cuda_graph.capture_passes",
                                     "cuda_graph.shared_memory",
                                     "offload",
                                     "offload.fraction",
                                     "offload.min_bytes",
                                     "offload.max_inflight",
                                     "offload.delay_until_cuda_graph",
                                     "offload.pool_slack",
                                     "offload.captured",
                                     "offload.delta_bytes",
                                     "fsdp",
                                     "fsdp.strategy",
                                     "fsdp.prefetch",
                                     "fsdp.bucket_bytes",
                                     "parallel.expert",
                                     "parallel.pipeline",
                                     "parallel",
                                     "parallel.transport",
                                     "parallel.chunks",
                                     "parallel.schedule",
                                     "parallel.group",
                                     "checker.hazards",
                                     "checker.poison",
                                     "checker.delays",
                                     "checker.schedule",
                                     "expect.counters"};

// A default that follows from another key.
void reset_decay(Scenario& s) { s.training.optimizer.decay_steps = s.training.steps; }

// One chunk is in the order of 1f1b, and a settled scenario has no order of chunks without chunks.
void reset_chunks(Scenario& s) {
  s.parallel.chunks = 1;
  s.parallel.schedule = PipelineSchedule::one_forward_one_backward;
}

void reset_group(Scenario& s) { s.parallel.group = s.parallel.pipeline; }

// A histogram belongs to its shape.
void reset_shape(Scenario& s) {
  const Scenario plain;
  s.data.distribution.shape = plain.data.distribution.shape;
  s.data.distribution.histogram.clear();
}

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> table = [] {
    std::vector<Setting> list;
    for (const std::string path : kSettings) {
      if (path == "training.optimizer.decay_steps") {
        list.push_back({path, reset_decay});
      } else if (path == "data.distribution.shape") {
        list.push_back({path, reset_shape});
      } else if (path == "parallel.chunks") {
        list.push_back({path, reset_chunks});
      } else if (path == "parallel.group") {
        list.push_back({path, reset_group});
      } else {
        list.push_back({path, back(path)});
      }
    }
    return list;
  }();
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
