// One example of each rule: a scenario that it refuses as the lowest rule that does, and the
// nearest legal value.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

using Edit = std::function<void(Scenario&)>;

struct Example {
  std::string rule, key, nearest;
  Edit illegal;  // From the defaults.
  Edit legal;    // What is done to the illegal scenario to have the nearest legal one.
};

// The default documents, whose pack is small, in one microbatch.
inline void one_pack(Scenario& s, MicrobatchLengths lengths) {
  s.data.documents = {{std::move(lengths)}};
}

inline void offload(Scenario& s, const char* pattern, std::vector<OffloadModule> modules,
                    std::vector<GraphModule> graphs = {}) {
  s.model.pattern = pattern;
  s.offload.modules = std::move(modules);
  s.cuda_graph.modules = std::move(graphs);
}

inline void shard(Scenario& s) { s.fsdp.strategy = Sharding::optim_grads_params; }

inline const std::vector<Example>& examples() {
  using enum GraphModule;
  using enum OffloadModule;
  static const std::vector<Example> list{
      {"L01", "model.attention.kv_heads", "2",
       [](Scenario& s) { s.model.attention.heads = 4, s.model.attention.kv_heads = 3; },
       [](Scenario& s) { s.model.attention.kv_heads = 2; }},
      {"L02", "model.mamba.d_inner", "64", [](Scenario& s) { s.model.mamba.d_inner = 60; },
       [](Scenario& s) { s.model.mamba.d_inner = 64; }},
      {"L02", "model.mamba.groups", "2", [](Scenario& s) { s.model.mamba.groups = 3; },
       [](Scenario& s) { s.model.mamba.groups = 2; }},
      {"L03", "model.hidden", "40",
       [](Scenario& s) {
         s.numerics = {Numerics::fp32, Numerics::bf16}, s.model.hidden = 36;
       },
       [](Scenario& s) { s.model.hidden = 40; }},
      {"L03", "data.pack_length", "80",
       [](Scenario& s) { s.numerics = {Numerics::bf16}, s.data.pack_length = 72; },
       [](Scenario& s) { s.data.pack_length = 80; }},
      {"L04", "model.vocab", "256",
       [](Scenario& s) {
         s.data.kind = DataKind::text, s.data.long_documents = LongDocuments::split;
       },
       [](Scenario& s) { s.model.vocab = 256; }},
      {"L05", "numerics", "[bf16]",
       [](Scenario& s) { s.model.core_attention = CoreAttention::cudnn; },
       [](Scenario& s) { s.numerics = {Numerics::bf16}; }},
      {"L05", "model.core_attention", "native",
       [](Scenario& s) {
         s.model.pattern = "M-", s.numerics = {Numerics::bf16},
         s.model.core_attention = CoreAttention::cudnn;
       },
       [](Scenario& s) { s.model.core_attention = CoreAttention::native; }},
      {"L06", "model.moe.top_k", "4",
       [](Scenario& s) { s.model.pattern = "*E", s.model.moe.top_k = 5; },
       [](Scenario& s) { s.model.moe.top_k = 4; }},
      {"L06", "model.moe.router", "sigmoid",
       [](Scenario& s) { s.model.pattern = "*E", s.model.moe.expert_bias = true; },
       [](Scenario& s) { s.model.moe.router = Router::sigmoid; }},
      {"L06", "model.moe.pad_to_capacity", "false",
       [](Scenario& s) {
         s.model.pattern = "*E", s.model.moe.capacity_factor.reset(), s.cuda_graph.modules = {attn};
       },
       [](Scenario& s) { s.model.moe.pad_to_capacity = false; }},
      {"L07", "data.documents[0][0]", "[64]", [](Scenario& s) { one_pack(s, {65}); },
       [](Scenario& s) { one_pack(s, {64}); }},
      {"L08", "data.documents[0][0]", "[40, 24]",
       [](Scenario& s) {
         one_pack(s, {40, 25});
       },
       [](Scenario& s) {
         one_pack(s, {40, 24});
       }},
      {"L08", "data.documents[0][0]", "[40, 15]",
       [](Scenario& s) {
         s.data.gaps = 1, s.data.align = 8, one_pack(s, {40, 16});
       },
       [](Scenario& s) {
         one_pack(s, {40, 15});
       }},
      {"L08", "data.gaps", "62",
       [](Scenario& s) {
         s.data.kind = DataKind::distribution, s.data.gaps = 64;
         s.data.distribution.min = 2, s.data.distribution.fill = {1'000'000};
       },
       [](Scenario& s) { s.data.gaps = 62; }},
      {"L09", "data.long_documents", "truncate",
       [](Scenario& s) { s.data.long_documents = LongDocuments::split; },
       [](Scenario& s) { s.data.long_documents = LongDocuments::truncate; }},
      {"L09", "data.long_documents", "truncate",
       [](Scenario& s) { s.data.long_documents = LongDocuments::split, one_pack(s, {65}); },
       [](Scenario& s) { s.data.long_documents = LongDocuments::truncate; }},
      {"L10", "data.path", "kind: text", [](Scenario& s) { s.data.path = "licences"; },
       [](Scenario& s) {
         s.data.kind = DataKind::text, s.data.long_documents = LongDocuments::split,
         s.model.vocab = 256;
       }},
      {"L10", "data.distribution", "kind: distribution",
       [](Scenario& s) { s.data.distribution.max = 60; },
       [](Scenario& s) { s.data.kind = DataKind::distribution; }},
      {"L10", "data.documents", "kind: lengths",
       [](Scenario& s) { s.data.kind = DataKind::distribution, one_pack(s, {4}); },
       [](Scenario& s) { s.data.kind = DataKind::lengths; }},
      {"L11", "data.mask.microbatches", "[1]", [](Scenario& s) { s.data.mask.microbatches = {2}; },
       [](Scenario& s) { s.data.mask.microbatches = {1}; }},
      {"L11", "data.mask.roles", "[assistant]", [](Scenario& s) { s.data.mask.roles = {"user"}; },
       [](Scenario& s) { s.data.mask.roles = {"assistant"}; }},
      {"L11", "data.mask.document_end", "true",
       [](Scenario& s) { s.data.mask.document_end = false; },
       [](Scenario& s) { s.data.mask.document_end = true; }},
      {"L12", "data.mask.prefix", "62", [](Scenario& s) { s.data.mask.prefix = 64; },
       [](Scenario& s) { s.data.mask.prefix = 62; }},
      {"L12", "data.mask.rate", "0", [](Scenario& s) { s.data.mask.rate = {1'000'000}; },
       [](Scenario& s) { s.data.mask.rate = {}; }},
      {"L12", "data.mask.microbatches", "[]",
       [](Scenario& s) {
         s.data.mask.microbatches = {0, 1};
       },
       [](Scenario& s) { s.data.mask.microbatches = {}; }},
      {"L12", "data.documents", "[[[2]]]",
       [](Scenario& s) {
         one_pack(s, {1, 1, 0});
       },
       [](Scenario& s) { one_pack(s, {2}); }},
      {"L13", "training.in_flight", "2", [](Scenario& s) { s.training.in_flight = 3; },
       [](Scenario& s) { s.training.in_flight = 2; }},
      {"L13", "training.in_flight", "1",
       [](Scenario& s) {
         s.training.change_microbatches_at = {{2, 1}};
       },
       [](Scenario& s) { s.training.in_flight = 1; }},
      {"L14", "training.recapture_at", "[2]", [](Scenario& s) { s.training.recapture_at = {3}; },
       [](Scenario& s) { s.training.recapture_at = {2}; }},
      {"L14", "training.recapture_at", "[2]", [](Scenario& s) { s.training.recapture_at = {1}; },
       [](Scenario& s) { s.training.recapture_at = {2}; }},
      {"L14", "training.recapture_at", "[]",
       [](Scenario& s) { s.training.recapture_at = {2}, s.cuda_graph.impl = GraphImpl::none; },
       [](Scenario& s) { s.training.recapture_at = {}; }},
      {"L14", "training.change_microbatches_at",
       "[{step: 1, microbatches: 2}, {step: 2, microbatches: 3}]",
       [](Scenario& s) {
         s.training.change_microbatches_at = {{2, 2}, {1, 3}};
       },
       [](Scenario& s) {
         s.training.change_microbatches_at = {{1, 2}, {2, 3}};
       }},
      {"L15", "cuda_graph.modules", "[]",
       [](Scenario& s) {
         s.cuda_graph.impl = GraphImpl::full_iteration, s.cuda_graph.modules = {attn};
       },
       [](Scenario& s) { s.cuda_graph.modules = {}; }},
      {"L10", "data.distribution.histogram", "[[1, 1]]",
       [](Scenario& s) {
         s.data.kind = DataKind::distribution, s.data.distribution.shape = Shape::histogram;
       },
       [](Scenario& s) {
         s.data.distribution.histogram = {{1, 1}};
       }},
      {"L10", "data.distribution.histogram", "[[1, 1]]",
       [](Scenario& s) {
         s.data.kind = DataKind::distribution, s.data.distribution.shape = Shape::histogram;
         s.data.distribution.histogram = {{3, 1}, {3, 2}};
       },
       [](Scenario& s) {
         s.data.distribution.histogram = {{1, 1}};
       }},
      {"L10", "data.distribution.histogram", "[]",
       [](Scenario& s) {
         s.data.kind = DataKind::distribution, s.data.distribution.histogram = {{3, 1}};
       },
       [](Scenario& s) { s.data.distribution.histogram.clear(); }},
      {"L16", "cuda_graph.modules", "[mlp]",
       [](Scenario& s) { s.model.pattern = "M-", s.cuda_graph.modules = {attn}; },
       [](Scenario& s) { s.cuda_graph.modules = {mlp}; }},
      {"L17", "cuda_graph.modules", "[moe_router]",
       [](Scenario& s) {
         s.model.pattern = "*E", s.cuda_graph.modules = {moe, moe_router};
       },
       [](Scenario& s) { s.cuda_graph.modules = {moe_router}; }},
      {"L18", "cuda_graph.modules", "[moe_router, moe_preprocess]",
       [](Scenario& s) { s.model.pattern = "*E", s.cuda_graph.modules = {moe_preprocess}; },
       [](Scenario& s) {
         s.cuda_graph.modules = {moe_router, moe_preprocess};
       }},
      {"L19", "model.moe.host_sync", "false",
       [](Scenario& s) {
         s.model.pattern = "*E", s.cuda_graph.modules = {moe};
         s.model.moe.pad_to_capacity = false, s.model.moe.host_sync = true;
       },
       [](Scenario& s) { s.model.moe.host_sync = false; }},
      {"L19", "model.moe.host_sync", "false",
       [](Scenario& s) {
         s.model.pattern = "*E", s.model.moe.pad_to_capacity = false;
         s.model.moe.host_sync = true;
       },
       [](Scenario& s) { s.model.moe.host_sync = false; }},
      {"L19", "model.moe.host_sync", "false",
       [](Scenario& s) {
         s.model.pattern = "*E", s.cuda_graph.impl = GraphImpl::full_iteration;
         s.model.moe.pad_to_capacity = false, s.model.moe.capacity_factor.reset();
         s.model.moe.host_sync = true;
       },
       [](Scenario& s) { s.model.moe.host_sync = false; }},
      {"L20", "model.moe.host_sync", "false",
       [](Scenario& s) {
         s.model.pattern = "*E", s.cuda_graph.modules = {moe_router, moe_preprocess};
         s.model.moe.pad_to_capacity = false, s.model.moe.capacity_factor.reset(),
         s.model.moe.host_sync = true;
       },
       [](Scenario& s) { s.model.moe.host_sync = false; }},
      {"L20", "model.moe.pad_to_capacity", "true",
       [](Scenario& s) {
         s.model.pattern = "*E", s.cuda_graph.modules = {moe_router, moe_preprocess};
         s.model.moe.pad_to_capacity = false;
       },
       [](Scenario& s) { s.model.moe.pad_to_capacity = true; }},
      {"L21", "model.moe.host_sync", "false",
       [](Scenario& s) { s.model.pattern = "*E", s.model.moe.host_sync = true; },
       [](Scenario& s) { s.model.moe.host_sync = false; }},
      {"L22", "training.steps", "2", [](Scenario& s) { s.training.steps = 1; },
       [](Scenario& s) { s.training.steps = 2; }},
      {"L23", "cuda_graph.max_packed_seqs", "[4, 8]",
       [](Scenario& s) {
         s.cuda_graph.max_packed_seqs = {8, 4};
       },
       [](Scenario& s) {
         s.cuda_graph.max_packed_seqs = {4, 8};
       }},
      {"L23", "cuda_graph.max_packed_seqs", "3",
       [](Scenario& s) {
         s.cuda_graph.max_packed_seqs = {2}, s.data.documents = {{{1}}, {{4, 4, 4}, {4, 4, 4, 4}}},
         s.training.steps = 2;
       },
       [](Scenario& s) { s.cuda_graph.max_packed_seqs = {3}; }},
      {"L23", "cuda_graph.max_packed_seqs", "4",
       [](Scenario& s) {
         s.cuda_graph.impl = GraphImpl::full_iteration, s.cuda_graph.max_packed_seqs = {3};
         s.data.documents = {{{1}}, {{4, 4, 4}, {4, 4, 4, 4}}}, s.training.steps = 2;
       },
       [](Scenario& s) { s.cuda_graph.max_packed_seqs = {4}; }},
      {"L23", "cuda_graph.max_seqlen", "5",  // A pack of four slots does not fit in any case.
       [](Scenario& s) {
         s.cuda_graph.max_packed_seqs = {3}, s.cuda_graph.max_seqlen = 4;
         s.data.documents = {{{1}}, {{5, 1}, {6, 6, 6, 6}}, {{6}, {7}}};
       },
       [](Scenario& s) { s.cuda_graph.max_seqlen = 5; }},
      {"L23", "cuda_graph.max_packed_seqs", "4",  // The only packs of short enough documents.
       [](Scenario& s) {
         s.cuda_graph.max_packed_seqs = {3}, s.cuda_graph.max_seqlen = 4;
         s.data.documents = {{{1}}, {{4, 4, 4, 4}, {5}}, {{6}, {7}}};
       },
       [](Scenario& s) { s.cuda_graph.max_packed_seqs = {4}; }},
      {"L24", "offload.modules", "[mlp_fc1]", [](Scenario& s) { offload(s, "M-", {core_attn}); },
       [](Scenario& s) { s.offload.modules = {mlp_fc1}; }},
      {"L24", "model.recompute", "[mlp_act]",
       [](Scenario& s) {
         s.model.recompute = {Recompute::mlp_act, Recompute::moe_act};
       },
       [](Scenario& s) { s.model.recompute = {Recompute::mlp_act}; }},
      {"L25", "offload.modules", "[core_attn, attn_proj]",
       [](Scenario& s) { offload(s, "M*-", {attn_proj}); },
       [](Scenario& s) {
         s.offload.modules = {core_attn, attn_proj};
       }},
      {"L26", "offload.modules", "[qkv_linear]",
       [](Scenario& s) { offload(s, "M*-", {attn_norm}, {attn}); },
       [](Scenario& s) { s.offload.modules = {qkv_linear}; }},
      {"L27", "model.recompute", "[]",
       [](Scenario& s) {
         offload(s, "M*-", {qkv_linear}), s.model.recompute = {Recompute::layernorm};
       },
       [](Scenario& s) { s.model.recompute = {}; }},
      {"L27", "model.recompute", "[mlp]",
       [](Scenario& s) {
         offload(s, "M*-", {core_attn, attn_proj});
         s.model.recompute = {Recompute::core_attn, Recompute::mlp};
       },
       [](Scenario& s) { s.model.recompute = {Recompute::mlp}; }},
      {"L27", "model.recompute", "[mlp]",
       [](Scenario& s) {
         offload(s, "M*-", {mamba_scan}), s.model.recompute = {Recompute::mlp, Recompute::mamba};
       },
       [](Scenario& s) { s.model.recompute = {Recompute::mlp}; }},
      {"L27", "model.recompute", "[]",
       [](Scenario& s) { offload(s, "*E", {expert_fc1}), s.model.recompute = {Recompute::moe}; },
       [](Scenario& s) { s.model.recompute = {}; }},
      {"L28", "cuda_graph.warmup_steps", "1",
       [](Scenario& s) { offload(s, "M*-", {qkv_linear}), s.cuda_graph.warmup_steps = 0; },
       [](Scenario& s) { s.cuda_graph.warmup_steps = 1; }},
      {"L29", "offload.max_inflight", "1",
       [](Scenario& s) {
         offload(s, "M*-", {qkv_linear}), s.cuda_graph.impl = GraphImpl::full_iteration;
       },
       [](Scenario& s) { s.offload.max_inflight = 1; }},
      {"L30", "cuda_graph.modules", "[moe_router]",
       [](Scenario& s) {
         offload(s, "*E", {expert_fc1}, {moe}), s.offload.delay_until_cuda_graph = true;
       },
       [](Scenario& s) { s.cuda_graph.modules = {moe_router}; }},
      {"L30", "offload.delay_until_cuda_graph", "false",
       [](Scenario& s) {
         offload(s, "M*-", {qkv_linear}), s.offload.delay_until_cuda_graph = true;
       },
       [](Scenario& s) { s.offload.delay_until_cuda_graph = false; }},
      {"L30", "offload.captured", "false",  // What goes is not what is captured.
       [](Scenario& s) {
         offload(s, "M*-", {qkv_linear, mlp_fc1}, {mlp}), s.offload.captured = true;
         s.offload.fraction = Ratio{500'000};
       },
       [](Scenario& s) { s.offload.captured = false; }},
      {"L30", "offload.pool_slack", "0",
       [](Scenario& s) {
         offload(s, "M*-", {qkv_linear}), s.offload.captured = true, s.offload.pool_slack = 1;
       },
       [](Scenario& s) { s.offload.pool_slack = 0; }},
      {"L31", "training.steps", "2",
       [](Scenario& s) {
         offload(s, "M*-", {qkv_linear}), s.training.steps = 1, s.cuda_graph.impl = GraphImpl::none;
       },
       [](Scenario& s) { s.training.steps = 2; }},
      {"L32", "fsdp.double_buffer", "true",
       [](Scenario& s) { shard(s), s.fsdp.double_buffer = false; },
       [](Scenario& s) { s.fsdp.double_buffer = true; }},
      {"L33", "fsdp.persist_buf_on_alloc_fail", "true",
       [](Scenario& s) {
         shard(s), s.model.pattern = "M*-M", s.fsdp.unit = {2},
                   s.fsdp.persist_buf_on_alloc_fail = false;
       },
       [](Scenario& s) { s.fsdp.persist_buf_on_alloc_fail = true; }},
      {"L34", "fsdp.prefetch", "1",
       [](Scenario& s) {
         shard(s), s.model.pattern = "MM", s.fsdp.prefetch = 2,
                   s.fsdp.persist_buf_on_alloc_fail = false;
       },
       [](Scenario& s) { s.fsdp.prefetch = 1; }},
      {"L35", "fsdp.unit", "[1, 1]",
       [](Scenario& s) {
         shard(s), s.fsdp.unit = {1, 2}, s.fsdp.unit_is_list = true;
       },
       [](Scenario& s) {
         s.fsdp.unit = {1, 1};
       }},
      {"L35", "fsdp.unit", "[1, 1]",
       [](Scenario& s) { shard(s), s.fsdp.unit = {1}, s.fsdp.unit_is_list = true; },
       [](Scenario& s) {
         s.fsdp.unit = {1, 1};
       }},
      {"L36", "parallel.transport", "nccl",
       [](Scenario& s) { shard(s), s.fsdp.reduction = Reduction::nccl; },
       [](Scenario& s) { s.parallel.transport = Transport::nccl; }},
      {"L37", "parallel.transport", "shm",
       [](Scenario& s) { s.parallel.data = 2, s.cuda_graph.impl = GraphImpl::full_iteration; },
       [](Scenario& s) { s.parallel.transport = Transport::shm; }},
      {"L38", "checker.delays[0].stream", "compute",
       [](Scenario& s) {
         s.checker.delays = {Scenario::Delay{DelayStream::d2h, {}, 1}};
       },
       [](Scenario& s) { s.checker.delays[0].stream = DelayStream::compute; }},
      {"L38", "checker.delays[0].rank", "0",
       [](Scenario& s) {
         s.checker.delays = {Scenario::Delay{DelayStream::compute, 1, 1}};
       },
       [](Scenario& s) { s.checker.delays[0].rank = 0; }},
      {"L39", "checker.schedule.kind", "random",
       [](Scenario& s) {
         s.checker.schedule.kind = ScheduleKind::program, s.checker.schedule.count = 9;
       },
       [](Scenario& s) { s.checker.schedule.kind = ScheduleKind::random; }},
      {"L40", "expect.error", "the rule that refuses it, such as L17",
       [](Scenario& s) { s.expect.verdict = ExpectedVerdict::refused; },
       [](Scenario& s) { s.expect.error = "L17"; }},
      {"L40", "expect.verdict", "violated", [](Scenario& s) { s.expect.judge = "hazard"; },
       [](Scenario& s) { s.expect.verdict = ExpectedVerdict::violated; }},
      {"L40", "expect.counters", "{}",
       [](Scenario& s) {
         s.expect.verdict = ExpectedVerdict::violated, s.expect.counters[Counter::ops].min = 1;
       },
       [](Scenario& s) { s.expect.counters.clear(); }},
      {"L41", "cuda_graph.evaluation", "eager",
       [](Scenario& s) {
         s.cuda_graph.impl = GraphImpl::full_iteration;
         s.cuda_graph.evaluation = GraphEvaluation::replay;
       },
       [](Scenario& s) { s.cuda_graph.evaluation = GraphEvaluation::eager; }},
      {"L42", "model.recompute", "[mlp, moe]",
       [](Scenario& s) {
         s.model.pattern = "M*-E";
         s.model.recompute = {Recompute::mlp_act, Recompute::moe_act, Recompute::mlp,
                              Recompute::moe};
       },
       [](Scenario& s) {
         s.model.recompute = {Recompute::mlp, Recompute::moe};
       }},
      {"L43", "cuda_graph.capture_passes", "0",
       [](Scenario& s) {
         s.cuda_graph.impl = GraphImpl::full_iteration;
         s.cuda_graph.capture_passes = 1;
       },
       [](Scenario& s) { s.cuda_graph.capture_passes = 0; }},
      {"L43", "cuda_graph.capture_passes", "0",
       [](Scenario& s) {
         s.cuda_graph.capture_passes = 1;
         s.cuda_graph.max_packed_seqs = {4, 8};
         s.cuda_graph.graph_memory_limit = 1;
         s.training.in_flight = 2;
       },
       [](Scenario& s) { s.cuda_graph.max_packed_seqs = {8}; }},
      {"L43", "cuda_graph.capture_passes", "0",
       [](Scenario& s) {
         s.cuda_graph.capture_passes = 1;
         s.cuda_graph.graph_memory_limit = 1;
         s.parallel.chunks = 2;
         s.parallel.schedule = PipelineSchedule::gpipe;
       },
       [](Scenario& s) { s.parallel.chunks = 1; }},
      {"L45", "cuda_graph.shared_memory", "false",
       [](Scenario& s) {
         s.cuda_graph.impl = GraphImpl::full_iteration, s.cuda_graph.shared_memory = true;
       },
       [](Scenario& s) { s.cuda_graph.impl = GraphImpl::partial; }},
      {"L03", "model.mlp.hidden", "48",
       [](Scenario& s) {
         s.numerics = {Numerics::fp8};
         s.model.mlp.hidden = 40;
       },
       [](Scenario& s) { s.model.mlp.hidden = 48; }},
      {"L46", "cuda_graph.warmup_steps", "1",
       [](Scenario& s) {
         s.numerics = {Numerics::fp8};
         s.fp8.recipe = Fp8Recipe::delayed;
         s.cuda_graph.warmup_steps = 0;
       },
       [](Scenario& s) { s.cuda_graph.warmup_steps = 1; }},
      {"L47", "fp8.save_original_input", "[qkv_linear]",
       [](Scenario& s) {
         s.numerics = {Numerics::fp8};
         s.fp8.save_original_input = {Fp8Layer::qkv_linear, Fp8Layer::shared_fc1};
       },
       [](Scenario& s) { s.fp8.save_original_input = {Fp8Layer::qkv_linear}; }},
      {"L48", "fp8.save_original_input", "[mlp_fc2, mamba_out_proj]",
       [](Scenario& s) {
         s.numerics = {Numerics::fp8};
         s.model.recompute = {Recompute::mlp_act};
         s.fp8.save_original_input = {Fp8Layer::mamba_out_proj};
       },
       [](Scenario& s) {
         s.fp8.save_original_input = {Fp8Layer::mlp_fc2, Fp8Layer::mamba_out_proj};
       }},
      {"L49", "fp8.param_gather", "false",
       [](Scenario& s) {
         s.numerics = {Numerics::fp8};
         s.fp8.param_gather = true;
       },
       [](Scenario& s) { s.fp8.param_gather = false; }},
      {"L50", "fp8.weight_cache", "false",
       [](Scenario& s) {
         s.numerics = {Numerics::fp8};
         s.fsdp.strategy = Sharding::optim_grads_params;
       },
       [](Scenario& s) { s.fp8.weight_cache = false; }},
      {"L51", "fp8.weight_cache", "true",
       [](Scenario& s) {
         s.numerics = {Numerics::fp8};
         s.fsdp.strategy = Sharding::optim;
         s.fp8.param_gather = true;
         s.fp8.weight_cache = false;
       },
       [](Scenario& s) { s.fp8.weight_cache = true; }},
      {"L44", "training.resume_at", "[{step: 1}]",
       [](Scenario& s) { s.training.resume_at = {{.step = 1, .microbatch = 1}}; },
       [](Scenario& s) { s.training.resume_at = {{.step = 1}}; }},
      {"L35", "fsdp.unit", "[1, 1, 1]",
       [](Scenario& s) {
         s.model.pattern = "M*-M";  // Three blocks, two of them in the first chunk.
         s.fsdp.strategy = Sharding::optim;
         s.fsdp.unit = {1, 2};
         s.fsdp.unit_is_list = true;
         s.parallel.chunks = 2;
         s.parallel.schedule = PipelineSchedule::gpipe;
       },
       [](Scenario& s) {
         s.fsdp.unit = {1, 1, 1};
       }},
      {"L52", "parallel.chunks", "2",
       [](Scenario& s) {
         s.model.pattern = "M*-";  // Two blocks.
         s.parallel.chunks = 3;
         s.parallel.schedule = PipelineSchedule::gpipe;
       },
       [](Scenario& s) { s.parallel.chunks = 2; }},
      {"L53", "parallel.schedule", "interleaved",
       [](Scenario& s) {
         s.parallel.chunks = 2;
         s.training.in_flight = 1;
       },
       [](Scenario& s) {
         s.parallel.schedule = PipelineSchedule::interleaved;
         s.training.in_flight = 2;
       }},
      {"L53", "parallel.schedule", "1f1b",
       [](Scenario& s) {
         s.parallel.schedule = PipelineSchedule::interleaved;
         s.training.in_flight = 1;
       },
       [](Scenario& s) { s.parallel.schedule = PipelineSchedule::one_forward_one_backward; }},
      {"L54", "training.in_flight", "2",
       [](Scenario& s) {
         s.parallel.schedule = PipelineSchedule::gpipe;
         s.training.in_flight = 1;
       },
       [](Scenario& s) { s.training.in_flight = 2; }},
      {"L55", "parallel.group", "2",
       [](Scenario& s) {
         s.parallel.chunks = 2;
         s.parallel.schedule = PipelineSchedule::gpipe;
         s.parallel.group = 3;
       },
       [](Scenario& s) { s.parallel.group = 2; }},
      {"L37", "parallel.transport", "shm",
       [](Scenario& s) {
         s.model.pattern = "*E";
         s.parallel.data = s.parallel.expert = 2;
       },
       [](Scenario& s) { s.parallel.transport = Transport::shm; }},
      {"L56", "parallel.expert", "2",
       [](Scenario& s) {
         s.model.pattern = "*E";
         s.cuda_graph.impl = GraphImpl::none;
         s.parallel.data = 6;
         s.parallel.expert = 4;
       },
       [](Scenario& s) { s.parallel.expert = 2; }},
      {"L56", "fsdp.reduction", "ordered",
       [](Scenario& s) {
         s.model.pattern = "*E";
         s.cuda_graph.impl = GraphImpl::none;
         s.fsdp.reduction = Reduction::nccl;
         s.parallel.data = s.parallel.expert = 2;
         s.parallel.transport = Transport::nccl;
       },
       [](Scenario& s) { s.fsdp.reduction = Reduction::ordered; }},
  };
  return list;
}

}  // namespace lockstep
