// Keys that a scenario has but does not read: whole sections by their name.
#include "scenarios/documents/layout.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/check.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

void add_model(const Scenario& scenario, std::vector<std::string>& keys) {
  const bool experts = has_layer(scenario, 'E');
  if (!has_layer(scenario, '*'))
    keys.insert(keys.end(), {"model.attention", "model.core_attention"});
  if (!has_layer(scenario, 'M')) keys.push_back("model.mamba");
  if (!has_layer(scenario, '-')) keys.push_back(experts ? "model.mlp.hidden" : "model.mlp");
  if (!experts) keys.insert(keys.end(), {"model.moe", "parallel.expert"});
}

void add_distribution(const Scenario::Data::Distribution& distribution,
                      std::vector<std::string>& keys) {
  if (distribution.shape == Shape::equal) keys.push_back("data.distribution.min");
  if (distribution.shape == Shape::lognormal) return;
  keys.insert(keys.end(), {"data.distribution.median", "data.distribution.sigma"});
}

void add_data(const Scenario& scenario, std::vector<std::string>& keys) {
  const DataKind kind = scenario.data.kind;
  if (kind != DataKind::lengths) keys.push_back("data.documents");
  if (kind == DataKind::distribution) {
    add_distribution(scenario.data.distribution, keys);
    keys.push_back("data.long_documents");  // Drawn documents fit.
  } else {
    keys.push_back("data.distribution");
  }
  if (!reads_bytes(scenario.data)) keys.insert(keys.end(), {"data.path", "data.digest"});
  if (scenario.data.long_documents != LongDocuments::split)
    keys.push_back("data.mask.document_end");
  if (kind != DataKind::jsonl) keys.push_back("data.mask.roles");
}

void add_machinery(const Scenario& scenario, std::vector<std::string>& keys) {
  const auto& optimizer = scenario.training.optimizer;
  if (optimizer.schedule == LrSchedule::constant) {
    keys.insert(keys.end(), {"training.optimizer.min_lr", "training.optimizer.decay_steps"});
  }
  if (!with_graphs(scenario)) {
    keys.insert(keys.end(),
                {"cuda_graph.modules", "cuda_graph.warmup_steps", "cuda_graph.max_packed_seqs",
                 "cuda_graph.graph_memory_limit", "cuda_graph.max_seqlen"});
  }
  if (scenario.training.eval_every == 0) keys.push_back("cuda_graph.evaluation");
  if (!with_offload(scenario)) keys.push_back("offload");
  // Stage 0 keeps nothing.
  if (with_offload(scenario) && scenario.parallel.pipeline == 1)
    keys.push_back("offload.delta_bytes");
  if (!with_sharding(scenario)) {
    keys.insert(keys.end(), {"fsdp.double_buffer", "fsdp.persist_buf_on_alloc_fail", "fsdp.unit",
                             "fsdp.prefetch", "fsdp.bucket_bytes"});
  }
  // Weights that are never given back are gathered once a step; gradients that stay whole need no
  // turns.
  const Scenario::Fsdp& fsdp = scenario.fsdp;
  if (fsdp.strategy == Sharding::optim) {
    keys.insert(keys.end(),
                {"fsdp.double_buffer", "fsdp.persist_buf_on_alloc_fail", "fsdp.prefetch"});
  }
  if (fsdp.strategy == Sharding::optim_grads) keys.push_back("fsdp.prefetch");
  const bool takes_turns =
      fsdp.strategy == Sharding::optim_grads || fsdp.strategy == Sharding::optim_grads_params;
  if (takes_turns && !fsdp.double_buffer) keys.push_back("fsdp.persist_buf_on_alloc_fail");
  if (!with_reduction(scenario)) keys.push_back("fsdp.reduction");
  // One rank exchanges with itself.
  if (ranks_of_run(scenario) == 1) keys.push_back("parallel.transport");
  if (scenario.parallel.chunks == 1) keys.push_back("parallel.group");
  if (scenario.checker.schedule.kind != ScheduleKind::pct) keys.push_back("checker.schedule.depth");
}

void add_fp8(const Scenario& scenario, std::vector<std::string>& keys) {
  if (!holds(scenario.numerics, Numerics::fp8)) {
    keys.push_back("fp8");
  } else if (scenario.fp8.recipe == Fp8Recipe::current) {
    keys.insert(keys.end(), {"fp8.history", "fp8.algorithm", "fp8.margin"});
  }
}

}  // namespace

std::vector<std::string> keys_without_effect(const Scenario& scenario) {
  std::vector<std::string> keys;
  add_model(scenario, keys);
  add_data(scenario, keys);
  add_machinery(scenario, keys);
  add_fp8(scenario, keys);
  return keys;
}

}  // namespace lockstep
