// Every rule refuses its example, as the lowest rule that does, and accepts the nearest legal value
// that it names.
#include "scenarios/rules/legality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <set>

#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;
using Edit = std::function<void(Scenario&)>;

struct Example {
  std::string rule, key, nearest;
  Edit illegal;  // From the defaults.
  Edit legal;    // What is done to the illegal scenario to have the nearest legal one.
};

std::string rule_of(const std::vector<ScenarioError>& errors) {
  return errors.empty() ? "none" : errors.front().rule;
}

std::string lowest_rule(const Scenario& scenario) { return rule_of(check_legality(scenario)); }

Scenario edited(const Edit& edit) {
  Scenario scenario;
  edit(scenario);
  return scenario;
}

// The default documents, whose pack is small, in one microbatch.
void one_pack(Scenario& s, MicrobatchLengths lengths) { s.data.documents = {{std::move(lengths)}}; }

void offload(Scenario& s, const char* pattern, std::vector<OffloadModule> modules,
             std::vector<GraphModule> graphs = {}) {
  s.model.pattern = pattern;
  s.offload.modules = std::move(modules);
  s.cuda_graph.modules = std::move(graphs);
}

void shard(Scenario& s) { s.fsdp.strategy = Sharding::optim_grads_params; }

const std::vector<Example>& examples() {
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
      {"L45", "cuda_graph.shared_memory", "false",
       [](Scenario& s) {
         s.cuda_graph.impl = GraphImpl::full_iteration, s.cuda_graph.shared_memory = true;
       },
       [](Scenario& s) { s.cuda_graph.impl = GraphImpl::partial; }},
      {"L44", "training.resume_at", "[{step: 1}]",
       [](Scenario& s) { s.training.resume_at = {{.step = 1, .microbatch = 1}}; },
       [](Scenario& s) { s.training.resume_at = {{.step = 1}}; }},
  };
  return list;
}

TEST(Legality, EveryRuleRefusesItsExampleAndAcceptsTheNearestLegalValue) {
  for (const Example& example : examples()) {
    SCOPED_TRACE(example.rule + " " + example.key);
    Scenario scenario = edited(example.illegal);
    const auto errors = check_legality(scenario);
    ASSERT_FALSE(errors.empty());
    EXPECT_EQ(errors.front().rule, example.rule);
    EXPECT_EQ(errors.front().key, example.key);
    EXPECT_EQ(errors.front().nearest, example.nearest);
    example.legal(scenario);
    EXPECT_EQ(lowest_rule(scenario), "none");
  }
}

// Files in which one key is not enough, or in which the nearest value of one rule is another's
// business.
TEST(Legality, AllAdviceTogetherIsLegal) {
  const std::vector<std::pair<Edit, std::vector<std::pair<std::string, std::string>>>> cases{
      {[](Scenario& s) { s.model.mamba.d_inner = 60, s.model.mamba.groups = 3; },
       {{"model.mamba.d_inner", "64"}, {"model.mamba.groups", "2"}}},
      {[](Scenario& s) {
         s.numerics = {Numerics::bf16};
         s.model.mamba.d_inner = s.model.mamba.head_dim = 100;
       },
       {{"model.mamba.d_inner", "96"}, {"model.mamba.head_dim", "96"}}},
      {[](Scenario& s) {
         one_pack(s, {3, 1000000});
       },
       {{"data.documents[0][0]", "[3, 61]"}}},
      {[](Scenario& s) { one_pack(s, {65}), s.data.gaps = 2; }, {{"data.documents[0][0]", "[62]"}}},
      {[](Scenario& s) { one_pack(s, {2}), s.data.align = 256; }, {{"data.align", "64"}}},
      {[](Scenario& s) {
         one_pack(s, {3, 5}), s.data.gaps = 70;
       },
       {{"data.gaps", "28"}}},
      {[](Scenario& s) {
         one_pack(s, {3});
         s.data.kind = DataKind::text, s.data.path = "texts", s.model.vocab = 256;
       },
       {{"data.documents", "[[[17, 1, 0, 30], [5, 16, 33]], [[64], [3, 4, 20, 15, 9]]]"}}},
      {[](Scenario& s) {
         s.data.kind = DataKind::distribution;
         s.data.distribution.empty = {1'000'000};
         s.cuda_graph.impl = GraphImpl::none;
       },
       {{"data.distribution.empty", "0"}}},
      {[](Scenario& s) {
         s.data.kind = DataKind::distribution, s.data.distribution.max = 1;
         s.cuda_graph.impl = GraphImpl::none;
       },
       {{"data.distribution.max", "2"}}},
      {[](Scenario& s) {
         s.model.pattern = "*E";
         s.model.moe.pad_to_capacity = false, s.model.moe.host_sync = true;
       },
       {{"model.moe.host_sync", "false"}}},
      {[](Scenario& s) {
         s.expect.verdict = ExpectedVerdict::refused, s.expect.error = "L17",
         s.expect.judge = "hazard";
       },
       {{"expect.judge", "none"}}},
      {[](Scenario& s) { s.expect.error = "L17", s.expect.counters[Counter::ops].min = 1; },
       {{"expect.error", "none"}}},
  };
  for (const auto& [edit, advice] : cases) {
    std::vector<std::pair<std::string, std::string>> got;
    for (const ScenarioError& error : check_legality(edited(edit)))
      got.emplace_back(error.key, error.nearest);
    EXPECT_EQ(got, advice);
  }
}

// 65,536 microbatches of a million documents each: what is not seen at once is left to the run.
TEST(Legality, IsDecidedAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(lowest_rule(edited([](Scenario& s) {
              s.training.steps = 1'000'000, s.training.microbatches = 1024, s.parallel.data = 64;
              s.data.kind = DataKind::distribution, s.data.pack_length = 1 << 20;
              s.data.distribution.shape = Shape::many_tiny;
              s.cuda_graph.max_packed_seqs = {1};
            })),
            "none");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Legality, EveryRuleHasAnExample) {
  std::set<std::string> rules;
  for (const Example& example : examples()) rules.insert(example.rule);
  for (int i = 1; i <= 45; ++i) {
    const std::string rule = (i < 10 ? "L0" : "L") + std::to_string(i);
    EXPECT_TRUE(rules.contains(rule)) << rule;
  }
}

TEST(Legality, DefaultsAreLegalAndBuilt) {
  EXPECT_EQ(lowest_rule(Scenario{}), "none");
  EXPECT_EQ(rule_of(check_built(Scenario{})), "none");
}

TEST(Legality, LowestRuleComesFirst) {
  const auto errors = check_legality(edited([](Scenario& s) {
    s.checker.schedule = {ScheduleKind::program, 1, 1, 2};
    s.training.in_flight = 9;
    s.model.attention.kv_heads = 3;
  }));
  std::vector<std::string> rules;
  for (const ScenarioError& error : errors) rules.push_back(error.rule);
  EXPECT_THAT(rules, ElementsAre("L01", "L13", "L39"));
}

TEST(Legality, WidthsOfAbsentLayersAndMachinerySwitchedOffAreNoRequests) {
  EXPECT_EQ(lowest_rule(edited([](Scenario& s) {
              s.model.pattern = "-";
              s.model.attention.kv_heads = 3;
              s.model.mamba.d_inner = 61;
              s.model.moe.top_k = 16;
              s.model.moe.host_sync = true;
              s.offload.delay_until_cuda_graph = true;
              s.fsdp.double_buffer = false;
              s.fsdp.unit = {9, 9};
              s.fsdp.unit_is_list = true;
            })),
            "none");
}

// L26, per tensor and region: which residual streams lie inside of one graph.
TEST(Legality, NormsAreOffloadedOnlyWhereTheirInputIsInsideOfAGraphOrEager) {
  using enum GraphModule;
  using enum OffloadModule;
  const auto rule = [](const char* pattern, OffloadModule module, std::vector<GraphModule> graphs) {
    return lowest_rule(edited([&](Scenario& s) { offload(s, pattern, {module}, graphs); }));
  };
  EXPECT_EQ(rule("*-", mlp_norm, {attn, mlp}), "none");
  EXPECT_EQ(rule("*-", mlp_norm, {}), "none");
  EXPECT_EQ(rule("*-", mlp_norm, {mlp}), "L26");
  EXPECT_EQ(rule("*-", mlp_norm, {attn}), "L26");  // The output of attention's graph.
  EXPECT_EQ(rule("*-", attn_norm, {attn, mlp}), "L26");
  EXPECT_EQ(rule("*-", attn_norm, {mlp}), "none");
  EXPECT_EQ(rule("*-*-", attn_norm, {mlp}),
            "L26");  // The second one reads what the first block's graph wrote.
  EXPECT_EQ(rule("*E", mlp_norm, {attn, moe}), "none");
  EXPECT_EQ(rule("*E", mlp_norm, {attn, moe_router}),
            "L26");  // Eager experts add to it after the graph.
  EXPECT_EQ(rule("M*", attn_norm, {mamba}), "L26");
  EXPECT_EQ(rule("*-M-", mlp_norm, {attn, mlp}), "L26");  // For two blocks the lone one fails.
  EXPECT_EQ(rule("M-", mlp_norm, {}), "L26");
  EXPECT_EQ(rule("M*-", core_attn, {}), "none");
  EXPECT_EQ(rule("M*-", mamba_scan, {mamba}), "none");
  Scenario eager = edited([](Scenario& s) { offload(s, "M*-", {attn_norm, mlp_norm}); });
  eager.cuda_graph.impl = GraphImpl::none;
  EXPECT_EQ(lowest_rule(eager), "none");
}

TEST(Legality, ExampleOfHalfOffloadedExpertsIsLegal) {
  using enum GraphModule;
  using enum OffloadModule;
  Scenario scenario = edited([](Scenario& s) {
    offload(s, "*E*E", {qkv_linear, core_attn, expert_fc1, moe_act},
            {attn, moe_router, moe_preprocess});
    s.offload.delay_until_cuda_graph = true;
  });
  EXPECT_EQ(lowest_rule(scenario), "none");
}

TEST(Legality, ReplaysMayBeExpectedToBeNone) {
  Scenario scenario = edited([](Scenario& s) {
    s.cuda_graph.max_packed_seqs = {1}, s.data.documents = {{{3, 4}}};
  });
  EXPECT_EQ(lowest_rule(scenario), "L23");
  scenario.expect.counters[Counter::graph_replays] = {0, 0, {}};
  EXPECT_EQ(lowest_rule(scenario), "none");
  scenario.expect.counters[Counter::graph_replays] = {1, {}, {}};
  EXPECT_EQ(lowest_rule(scenario), "L23");
  scenario.expect.counters[Counter::graph_replays] = {{}, {}, Counter::ops};
  EXPECT_EQ(lowest_rule(scenario), "L23");
}

TEST(Legality, DummySlotCountsAgainstTheBuckets) {
  Scenario scenario = edited([](Scenario& s) {
    s.cuda_graph.max_packed_seqs = {2}, s.data.documents = {{{3, 4}}};
  });
  EXPECT_EQ(lowest_rule(scenario), "none");
  scenario.data.tail = Tail::append_dummy_seq;
  EXPECT_EQ(lowest_rule(scenario), "L23");
}

TEST(Legality, OneRankMayShardAndEqualUnitsFitThePool) {
  Scenario scenario = edited([](Scenario& s) {
    shard(s), s.model.pattern = "M*-M*-", s.fsdp.unit = {2},
              s.fsdp.persist_buf_on_alloc_fail = false;
  });
  EXPECT_EQ(lowest_rule(scenario), "none");
  scenario.fsdp.unit = {1};
  EXPECT_EQ(lowest_rule(scenario), "L33");
}

}  // namespace
}  // namespace lockstep
