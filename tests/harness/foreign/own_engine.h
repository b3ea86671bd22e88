// Scenarios for lockstep's own engine behind the wire: together they ask for all that it honours.
#pragma once

#include <map>
#include <stdexcept>
#include <string>

#include "scenarios/io/reader.h"
#include "tests/support/program.h"

namespace lockstep {

// The command of --engine.
inline std::string own_engine(const std::string& fault = "", bool whole_steps = false) {
  return shell_command(lockstep_program()) + " engine --device sim" +
         (whole_steps ? " --whole-steps" : "") + (fault.empty() ? "" : " --plant " + fault);
}

// The engine that a scenario asks for: of whole steps, and what its name says.
inline std::string own_engine_for(const Scenario& scenario, const std::string& fault = "") {
  std::string command = own_engine(fault, scenario.cuda_graph.impl == GraphImpl::full_iteration);
  if (scenario.name.starts_with("threads")) command += " --thread-ranks";
  if (scenario.name == "own-scalars") command += " --own-scalars";
  if (scenario.name == "whole-counts") command += " --steps-only";
  return command;
}

// Documents of some scenarios: packs whose buckets come in turns, steps whose microbatches exchange
// theirs, and a step without a target.
inline std::string own_engine_documents(const std::string& name) {
  if (name == "evictions")
    return "documents: [[[10, 10], [2, 2, 2]], [[9, 9], [2, 3, 2]], "
           "[[1, 7], [1, 2, 1, 2, 1, 2]], [[8, 8], [5, 2, 2]]]";
  if (name == "whole-buckets")
    return "documents: [[[7, 1, 9], [2, 3, 2, 2, 5, 2]], [[2, 3, 2, 2, 5, 2], [7, 1, 9]]]";
  if (name == "model-capacity") return "documents: [[[32], [30, 2]]]";
  if (name == "model-long") return "documents: [[[4, 47, 45]], [[100, 3]]]";
  if (name == "steep-norm") return "documents: [[[4, 47, 45]]]";
  const std::string most =
      "documents: [[[7, 1, 9], [5, 0, 12], [30], [2, 2, 2, 2, 2]], [[20], [4, 3, 11], [1, 0, 16], "
      "[8, 8, 8]]";
  return most + (name == "own-scalars" ? ", [[1, 1], [0], [1], [1, 1, 1]]]" : "]");
}

// Packs of several documents, a long one, empty ones, and one with more slots than most capacities
// below.
inline std::string own_engine_text(const std::string& name, const std::string& keys) {
  const bool own_data = keys.find("\ndata: {") != std::string::npos;
  const std::string data = own_engine_documents(name);
  std::string text = "schema: 1\nname: " + name + "\n" + keys;
  if (!own_data) return text + "data: {" + data + ", pack_length: 32}\n";
  return text.replace(text.find("\ndata: {") + 8, 0, data + ", ");
}

inline const std::map<std::string, std::string>& own_engine_texts() {
  static const std::map<std::string, std::string> list{
      {"graphs",
       R"(numerics: [bf16]
model: {pattern: "M*-", hidden: 16, vocab: 32, dropout: 0.25}
data: {gaps: 1, align: 4, pack_length: 48}
training: {steps: 5, microbatches: 4, in_flight: 2, eval_every: 2, recapture_at: [3]}
cuda_graph: {max_packed_seqs: [3, 4], evaluation: replay}
)"},
      {"offload",
       R"(model: {pattern: "M*-*", hidden: 16, vocab: 32}
data: {tail: append_dummy_seq, pack_length: 32}
training: {steps: 5, microbatches: 4, in_flight: 3}
offload:
  {modules: [qkv_linear, core_attn, attn_proj, mlp_fc1, mamba_in_proj, mamba_scan],
   max_inflight: 2}
)"},
      {"offload-in-graphs",
       R"(numerics: [bf16]
model: {pattern: "*-*-", hidden: 16, vocab: 32}
training: {steps: 5, microbatches: 4, in_flight: 4}
offload: {modules: [qkv_linear, core_attn, mlp_fc1], captured: true}
)"},
      {"eager",
       R"(model:
  {pattern: "MM-*", hidden: 16, vocab: 32, tied_embedding: true,
   recompute: [layernorm, core_attn, mlp, mamba]}
training:
  {steps: 4, microbatches: 4, eval_every: 1, optimizer: {clip: 0.05},
   change_microbatches_at: [{step: 2, microbatches: 2}]}
cuda_graph: {impl: none}
offload: {modules: [core_attn]}
)"},
      {"experts",
       R"(model:
  {pattern: "*E-", hidden: 16, vocab: 32,
   moe: {experts: 3, top_k: 1, hidden: 16, aux_loss: 0.01}}
training: {steps: 5, microbatches: 4, in_flight: 2, eval_every: 2}
cuda_graph: {modules: [attn, moe_router]}
offload: {modules: [core_attn, expert_fc1, moe_act], delay_until_cuda_graph: true}
)"},
      {"ranks",
       R"(numerics: [bf16]
model: {pattern: "M-*-", hidden: 16, vocab: 32}
training: {steps: 4, microbatches: 2, in_flight: 2, eval_every: 2}
fsdp: {strategy: optim_grads_params, unit: 1}
parallel: {data: 2}
)"},
      {"ranks-optim",
       R"(model: {pattern: "*-E", hidden: 16, vocab: 32}
training: {steps: 3, microbatches: 1}
cuda_graph: {modules: [attn, mlp]}
fsdp: {strategy: optim, bucket_bytes: 1024}
parallel: {data: 4}
)"},
      {"ranks-grads",
       R"(model: {pattern: "*-*-", hidden: 16, vocab: 32, tied_embedding: true}
training: {steps: 3, microbatches: 1}
cuda_graph: {impl: none}
fsdp: {strategy: optim_grads, double_buffer: false, prefetch: 0}
parallel: {data: 2}
)"},
      {"ranks-whole-steps",
       R"(model: {pattern: "*-*-", hidden: 16, vocab: 32}
training: {steps: 4, microbatches: 2, in_flight: 2}
cuda_graph: {impl: full_iteration}
fsdp: {strategy: optim_grads_params, unit: 1}
parallel: {data: 2, transport: shm}
)"},
      {"whole-steps",
       R"(numerics: [bf16]
model: {pattern: "M*-", hidden: 16, vocab: 32, dropout: 0.25}
training: {steps: 6, microbatches: 2, in_flight: 2, recapture_at: [4], optimizer: {lr_warmup: 3}}
cuda_graph: {impl: full_iteration, max_packed_seqs: [4, 6]}
)"},
      {"shards",
       R"(numerics: [bf16]
model: {pattern: "M-*-", hidden: 16, vocab: 32}
training: {steps: 5, microbatches: 4, in_flight: 2}
fsdp: {strategy: optim_grads_params, unit: 1}
)"},
      {"shards-eager",
       R"(model: {pattern: "*-E", hidden: 16, vocab: 32, recompute: [mlp_act, moe]}
training: {steps: 3, microbatches: 4}
cuda_graph: {impl: none}
fsdp: {strategy: optim_grads, double_buffer: false}
)"},
      {"threads",
       R"(model:
  {pattern: "*E-", hidden: 16, vocab: 32,
   moe: {experts: 4, top_k: 1, hidden: 16, router: sigmoid, expert_bias: true}}
training: {steps: 4, microbatches: 2, in_flight: 2, eval_every: 2}
fsdp: {strategy: optim_grads_params, unit: 1}
parallel: {data: 2}
)"},
      {"threads-four",
       R"(model: {pattern: "*-*", hidden: 16, vocab: 32}
training: {steps: 3, microbatches: 1}
cuda_graph: {impl: none}
fsdp: {strategy: optim_grads}
parallel: {data: 4}
)"},
      {"experts-within",
       R"(model:
  {pattern: "*E", hidden: 16, vocab: 32,
   moe: {experts: 3, top_k: 1, hidden: 16, router: sigmoid, expert_bias: true, aux_loss: 0.01}}
training:
  {steps: 5, microbatches: 4, in_flight: 2,
   change_microbatches_at: [{step: 2, microbatches: 2}]}
cuda_graph: {modules: [attn, moe_router], capture_passes: 2}
fsdp: {strategy: optim_grads}
)"},
      {"experts-change",
       R"(model:
  {pattern: "*E", hidden: 16, vocab: 32,
   moe: {experts: 3, top_k: 1, hidden: 16, aux_loss: 0.01}}
training:
  {steps: 5, microbatches: 4, in_flight: 2,
   change_microbatches_at: [{step: 2, microbatches: 2}]}
cuda_graph: {modules: [attn, moe_router]}
fsdp: {strategy: optim_grads}
)"},
      {"fp8",
       R"(numerics: [fp8]
model: {pattern: "M*-", hidden: 32, vocab: 32, mlp: {hidden: 48}, recompute: [mlp_act]}
training: {steps: 5, microbatches: 4, in_flight: 2, eval_every: 2, recapture_at: [3]}
cuda_graph: {max_packed_seqs: [3, 4], evaluation: replay}
fp8: {save_original_input: [mlp_fc2, qkv_linear]}
)"},
      {"fp8-delayed",
       R"(numerics: [fp8]
model: {pattern: "*-M", hidden: 32, vocab: 32, mlp: {hidden: 48}}
training: {steps: 6, microbatches: 4, in_flight: 2, eval_every: 2}
cuda_graph: {capture_passes: 1}
fp8: {recipe: delayed, history: 2, margin: 1}
)"},
      {"fp8-offload",
       R"(numerics: [fp8]
model: {pattern: "*-M", hidden: 32, vocab: 32, mlp: {hidden: 48}}
training: {steps: 4, microbatches: 4, in_flight: 2}
fp8: {save_original_input: [mlp_fc1]}
offload: {modules: [qkv_linear, core_attn, attn_proj, mlp_fc1, mamba_in_proj]}
)"},
      {"fp8-ranks",
       R"(numerics: [fp8]
model: {pattern: "M*-", hidden: 32, vocab: 32, mlp: {hidden: 48}}
training: {steps: 5, microbatches: 2, in_flight: 2, eval_every: 2}
fp8: {recipe: delayed, history: 1}
fsdp: {strategy: optim_grads}
parallel: {data: 2}
)"},
      {"fp8-gathered",
       R"(numerics: [fp8]
model: {pattern: "*-M-", hidden: 32, vocab: 32, mlp: {hidden: 48}}
training: {steps: 5, microbatches: 2, in_flight: 2, eval_every: 2}
fp8: {param_gather: true}
fsdp: {strategy: optim_grads, unit: 1}
parallel: {data: 2}
)"},
      {"fp8-resident",
       R"(numerics: [fp8]
model: {pattern: "*-M-", hidden: 32, vocab: 32, mlp: {hidden: 48}}
training: {steps: 5, microbatches: 2, in_flight: 1, eval_every: 1}
cuda_graph: {impl: none}
fsdp: {strategy: optim_grads, unit: 1}
)"},
      {"fp8-shards",
       R"(numerics: [fp8]
model: {pattern: "*-M-", hidden: 32, vocab: 32, mlp: {hidden: 48}}
training: {steps: 6, microbatches: 4, in_flight: 2}
cuda_graph: {impl: none}
fp8: {recipe: delayed, history: 2, algorithm: most_recent}
fsdp: {strategy: optim_grads_params, unit: 1}
)"},
      {"fp8-whole-steps",
       R"(numerics: [fp8]
model: {pattern: "M*-", hidden: 32, vocab: 32, mlp: {hidden: 48}}
training: {steps: 5, microbatches: 2, in_flight: 2}
cuda_graph: {impl: full_iteration, max_packed_seqs: [4, 6]}
fp8: {recipe: delayed, history: 2}
)"},
      {"dropout",
       R"(model: {pattern: "*-", hidden: 16, vocab: 32, dropout: 0.25}
training: {steps: 2, microbatches: 2}
cuda_graph: {impl: none}
)"},
      {"long",
       R"(model: {pattern: "*-", hidden: 16, vocab: 32, tied_embedding: true}
training: {steps: 12, microbatches: 2, optimizer: {eps: 1.0e-3, weight_decay: 0.1}}
cuda_graph: {impl: none}
)"},
      // A row of its gated norm is near 0: the loss is straight over steps of 2^-8 of a weight and
      // turns within steps of 2^-14, so a difference over large ones is not its derivative.
      {"steep-norm",
       R"(model: {pattern: "-M", hidden: 136, tied_embedding: true, dropout: 0.1, mlp: {hidden: 8, activation: swiglu},
  mamba: {d_inner: 16, conv_width: 3, chunk: 64}}
data: {pack_length: 96}
training: {steps: 1, in_flight: 1, seed: 622}
cuda_graph: {impl: none}
)"},
      // For the relation that knows what a model computes: every part of each layer changes its
      // losses and gradients by more than roundings do.
      {"model-dense",
       R"(model:
  {pattern: "*-", hidden: 32, vocab: 64, dropout: 0.25,
   attention: {heads: 4, kv_heads: 2, head_dim: 16}}
data: {gaps: 1, align: 2, pack_length: 48}
training: {steps: 4, microbatches: 4, eval_every: 2}
)"},
      {"model-dense-bf16",
       R"(numerics: [bf16]
model:
  {pattern: "*-", hidden: 32, vocab: 64, attention: {heads: 4, kv_heads: 2, head_dim: 16}}
data: {gaps: 1, align: 2, pack_length: 48}
training: {steps: 4, microbatches: 4}
)"},
      {"model-experts",
       R"(model:
  {pattern: "*E", hidden: 32, vocab: 64,
   moe: {experts: 3, top_k: 2, hidden: 16, shared_hidden: 8, aux_loss: 0.01, z_loss: 0.01,
         capacity_factor: 0.5, router: sigmoid, expert_bias: true}}
data: {gaps: 1, align: 2, pack_length: 48}
training: {steps: 4, microbatches: 4}
)"},
      {"model-experts-softmax",
       R"(model:
  {pattern: "*E", hidden: 32, vocab: 64,
   moe: {experts: 3, top_k: 2, hidden: 16, aux_loss: 0.01, capacity_factor: 1.25}}
data: {gaps: 1, align: 2, pack_length: 48}
training: {steps: 4, microbatches: 4}
)"},
      // 1.05 * 5 * 32 / 6 is 28, or a little more in another order.
      {"model-capacity",
       R"(model: {pattern: "E", moe: {experts: 6, top_k: 5, capacity_factor: 1.05}}
data: {pack_length: 32}
training: {steps: 2, seed: 2}
)"},
      // Documents of several blocks of keys and chunks of a scan, with no gap between them.
      {"model-long",
       R"(model:
  {pattern: "*M", hidden: 32, vocab: 64, attention: {heads: 2, kv_heads: 1, head_dim: 16},
   mamba: {d_inner: 32, head_dim: 16, groups: 2, state: 16, chunk: 16}}
data: {pack_length: 112}
training: {steps: 2, microbatches: 1}
cuda_graph: {impl: none}
)"},
      {"model-scan",
       R"(model:
  {pattern: "M-", hidden: 32, vocab: 64, mlp: {activation: swiglu},
   mamba: {d_inner: 32, head_dim: 16, groups: 2, state: 16, chunk: 16}}
data: {gaps: 1, align: 2, pack_length: 48}
training: {steps: 4, microbatches: 4}
)"},
      {"model-scan-bf16",
       R"(numerics: [bf16]
model:
  {pattern: "M-", hidden: 32, vocab: 64, mlp: {activation: swiglu},
   mamba: {d_inner: 32, head_dim: 16, groups: 2, state: 16, chunk: 16}}
data: {gaps: 1, align: 2, pack_length: 48}
training: {steps: 4, microbatches: 4}
)"},
      {"evictions",
       R"(model: {pattern: "*-", hidden: 16, vocab: 32}
data: {pack_length: 32}
training: {steps: 8, microbatches: 2, recapture_at: [5]}
cuda_graph: {max_packed_seqs: [2, 4, 8], graph_memory_limit: 125000, warmup_steps: 1}
expect: {counters: {graphs_captured: 56, graphs_evicted: 40}}
)"},
      {"own-scalars",
       R"(model: {pattern: "*-", hidden: 16, vocab: 32}
data: {pack_length: 32}
training:
  {steps: 6, microbatches: 2,
   optimizer: {schedule: linear, lr_warmup: 3, decay_steps: 3, min_lr: 1.0e-4}}
fsdp: {strategy: optim_grads}
parallel: {data: 2}
)"},
      {"whole-buckets",
       R"(model: {pattern: "*-", hidden: 16, vocab: 32}
data: {pack_length: 32}
training: {steps: 5, microbatches: 2, in_flight: 2, eval_every: 2}
cuda_graph: {impl: full_iteration, max_packed_seqs: [3, 6], warmup_steps: 1}
)"},
      {"whole-counts",
       R"(model: {pattern: "*-", hidden: 16, vocab: 32}
training:
  {steps: 6, microbatches: 4, in_flight: 2, eval_every: 1,
   change_microbatches_at: [{step: 3, microbatches: 2}]}
cuda_graph: {impl: full_iteration, max_packed_seqs: 6, warmup_steps: 1}
)"},
  };
  return list;
}

inline const std::map<std::string, Scenario>& own_engine_scenarios() {
  static const std::map<std::string, Scenario> list = [] {
    std::map<std::string, Scenario> made;
    for (const auto& [name, keys] : own_engine_texts()) {
      const ReadResult read = read_scenario_text(own_engine_text(name, keys), name);
      if (!read.ok()) throw std::runtime_error(read.errors.front().text());
      made[name] = read.scenario;
    }
    return made;
  }();
  return list;
}

// Scenarios of the library that ask for what those above do not, in their last precision.
inline const std::map<std::string, Scenario>& library_scenarios() {
  static const std::map<std::string, Scenario> list = [] {
    std::map<std::string, Scenario> made;
    for (const char* name : {"bounded-documents",
                             "capture-passes",
                             "fp8-delayed-ranks",
                             "fsdp-capture-passes",
                             "graph-memory-limit",
                             "graph-memory-limit-full-iteration",
                             "moe-capacity-drops",
                             "moe-dropless-host-sync",
                             "cudnn-attention-graphs",
                             "offload-ahead-full-iteration",
                             "offload-captured",
                             "offload-captured-ahead",
                             "offload-captured-ranks",
                             "offload-experts-delayed",
                             "offload-experts-sync-free",
                             "offload-fraction",
                             "offload-full-iteration-slack",
                             "offload-pool-slack",
                             "offload-shared-memory",
                             "shared-memory",
                             "shared-memory-experts",
                             "shared-memory-in-flight",
                             "fsdp-full-iteration-grads",
                             "fsdp-full-iteration-params",
                             "fsdp-grads-graphs",
                             "fsdp-moe-eager",
                             "fsdp-one-rank-decides",
                             "fsdp-optim-changing-count",
                             "fsdp-params-graphs",
                             "fsdp-rank-without-documents",
                             "fsdp-temporary-buffers",
                             "fsdp-tied-embedding",
                             "sixty-six-layers",
                             "hundreds-of-documents",
                             "step-without-targets",
                             "vocabulary-over-16-bits",
                             "moe-dropless-whole-layers",
                             "moe-full-iteration"}) {
      const ReadResult read = read_scenario_file(library_file(name));
      if (!read.ok()) throw std::runtime_error(read.errors.front().text());
      made[name] = read.scenario;
      made[name].numerics = {read.scenario.numerics.back()};
    }
    return made;
  }();
  return list;
}

}  // namespace lockstep
