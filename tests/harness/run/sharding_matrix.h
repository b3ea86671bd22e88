// Every combination of what graphs hold, how the state is sharded, how buffers are kept, ranks and
// microbatches: small runs in which each of them has something to do. Combinations that are illegal
// come with the rule that refuses them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scenarios/scenario.h"
#include "scenarios/schema/words.h"

namespace lockstep {

struct MatrixCase {
  Scenario scenario;
  std::string rule;  // That refuses it, or "none".
};

// The contents of a graph, in a model whose units are equal and in one that has an odd one.
struct MatrixGraphs {
  std::string_view name;
  std::vector<GraphModule> modules;
  const char *equal, *odd;  // Patterns.
  std::int64_t unit;        // Blocks.
  bool whole_step = false;  // One graph for all, on ranks that are processes.
};

inline const std::vector<MatrixGraphs>& matrix_graphs() {
  using enum GraphModule;
  static const std::vector<MatrixGraphs> rows{
      {"attn", {attn}, "*-*-*-", "*-*-*-*", 1},
      {"attn-router-preprocess", {attn, moe_router, moe_preprocess}, "*E*E*E", "*E*E*EM", 1},
      {"router", {moe_router}, "*E*E*E", "*-*E*E*E", 1},
      {"mamba", {mamba}, "MMM", "MM*M", 1},
      {"attn-mamba", {attn, mamba}, "M*-M*-M*-", "M*-M*-M*-M", 2},
      {"layers", {}, "M*EM*EM*E", "M*EM*EM*E*-", 2},
      {"step", {}, "M*-M*-M*-", "M*-M*-M*-M", 2, true},
      {"step-experts", {}, "*E*E*E", "*E*E*EM", 1, true},
  };
  return rows;
}

// Eight steps with three layouts in turn, of which one makes the first microbatch of some rank fall
// back; evaluations in between, a second capture, dropout, and steps that are large enough to be
// seen.
inline Scenario matrix_model(const MatrixGraphs& graphs, bool odd) {
  Scenario s;
  s.model.pattern = odd ? graphs.odd : graphs.equal;
  s.model.hidden = 16;
  s.model.vocab = 24;
  s.model.attention.heads = 1;
  s.model.mamba.d_inner = 32;
  s.model.mlp.hidden = 16;
  s.model.moe.hidden = 16;
  s.model.dropout = {100'000};
  s.data.pack_length = 32;
  s.data.documents = {{{17, 1, 0, 10}, {5, 16, 9}, {32}, {2, 3, 3}, {20, 11}},
                      {{32}, {9, 3, 8}, {1, 30}, {12, 12}, {7, 7, 7}},
                      {{4, 4, 4, 4, 4, 4}, {6, 6}, {25}, {8, 0, 8}, {3, 4, 2, 5}}};
  s.training.steps = 8;
  s.training.optimizer.lr = 0.02;
  s.training.optimizer.decay_steps = 8;
  s.training.eval_every = 3;
  s.training.recapture_at = {5};
  s.cuda_graph.modules = graphs.modules;
  if (graphs.whole_step) s.cuda_graph.impl = GraphImpl::full_iteration;
  s.cuda_graph.max_packed_seqs = {4};
  s.expect.counters[Counter::eager_fallbacks] = {2, {}, {}};
  return s;
}

// The lowest rule that the combination breaks.
inline std::string matrix_rule(const MatrixGraphs& graphs, const Scenario::Fsdp& fsdp, bool odd) {
  if (fsdp.strategy == Sharding::no_shard) return "none";
  if (!fsdp.double_buffer) return graphs.whole_step ? "none" : "L32";
  if (fsdp.persist_buf_on_alloc_fail) return "none";
  return odd && !graphs.whole_step ? "L33" : fsdp.prefetch == 2 ? "L34" : "none";
}

inline std::string matrix_name(const MatrixGraphs& graphs, const Scenario& s, bool odd) {
  static constexpr const char* kStrategies[] = {"none", "optim", "grads", "params"};
  const Scenario::Fsdp& fsdp = s.fsdp;
  return std::string(word(s.numerics.front())) + "-" + std::string(graphs.name) +
         (odd ? "-odd-" : "-") + kStrategies[static_cast<int>(fsdp.strategy)] +
         (fsdp.double_buffer ? "-double" : "-single") +
         (fsdp.persist_buf_on_alloc_fail ? "-persist-p" : "-p") + std::to_string(fsdp.prefetch) +
         "-r" + std::to_string(s.parallel.data) + "-m" + std::to_string(s.training.microbatches);
}

// Buffers and prefetch are no requests under no_shard: there they have one setting.
inline std::vector<Scenario::Fsdp> matrix_buffers() {
  std::vector<Scenario::Fsdp> list(1);
  for (const Sharding strategy :
       {Sharding::optim, Sharding::optim_grads, Sharding::optim_grads_params}) {
    for (const bool double_buffer : {true, false}) {
      for (const bool persist : {true, false}) {
        for (const std::int64_t prefetch : {0, 1, 2}) {
          Scenario::Fsdp& fsdp = list.emplace_back();
          fsdp.strategy = strategy;
          fsdp.double_buffer = double_buffer;
          fsdp.persist_buf_on_alloc_fail = persist;
          fsdp.prefetch = prefetch;
        }
      }
    }
  }
  return list;
}

// One model and one way to shard it, on every number of ranks and microbatches, in both precisions.
inline void add_runs(const MatrixGraphs& graphs, bool odd, const Scenario::Fsdp& fsdp,
                     std::vector<MatrixCase>& cases) {
  for (const Numerics numerics : {Numerics::fp32, Numerics::bf16}) {
    for (const std::int64_t ranks : {1, 2, 3, 4}) {
      for (const std::int64_t microbatches : {1, 2, 4}) {
        Scenario s = matrix_model(graphs, odd);
        s.numerics = {numerics};
        s.fsdp = fsdp;
        s.fsdp.unit = {graphs.unit};
        s.parallel.data = ranks;
        if (graphs.whole_step && ranks > 1) s.parallel.transport = Transport::shm;
        s.training.microbatches = microbatches;
        s.training.in_flight = microbatches == 1 ? 1 : 2;
        s.training.seed = 1 + std::ssize(cases);
        s.name = matrix_name(graphs, s, odd);
        cases.push_back({s, matrix_rule(graphs, fsdp, odd)});
      }
    }
  }
}

inline std::vector<MatrixCase> sharding_matrix() {
  std::vector<MatrixCase> cases;
  for (const MatrixGraphs& graphs : matrix_graphs()) {
    for (const bool odd : {false, true}) {
      for (const Scenario::Fsdp& fsdp : matrix_buffers()) add_runs(graphs, odd, fsdp, cases);
    }
  }
  return cases;
}

}  // namespace lockstep
