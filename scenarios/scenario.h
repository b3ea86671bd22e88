// A scenario as a value: every key of schema 1 with its default (docs/scenario-reference.md,
// section 3).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/counter.h"

namespace lockstep {

// The greatest seed. The seed after it is 0.
inline constexpr std::int64_t kMostSeed = (std::int64_t{1} << 53) - 1;

// A decimal with at most 6 digits after the point, kept exact.
struct Ratio {
  std::int64_t millionths = 0;
  double value() const { return static_cast<double>(millionths) / 1e6; }
  friend auto operator<=>(const Ratio&, const Ratio&) = default;
};

enum class Numerics : std::uint8_t { fp32, bf16, fp8 };
enum class MlpActivation : std::uint8_t { squared_relu, swiglu };
enum class Router : std::uint8_t { softmax, sigmoid };
enum class Recompute : std::uint8_t { layernorm, mlp_act, moe_act, core_attn, mlp, mamba, moe };
enum class CoreAttention : std::uint8_t { native, cudnn };
enum class DataKind : std::uint8_t { lengths, distribution, text, jsonl };
enum class Shape : std::uint8_t {
  uniform,
  lognormal,
  equal,
  one_giant,
  many_tiny,
  measured,
  published,
  histogram
};
enum class LongDocuments : std::uint8_t { split, truncate, error };
enum class Tail : std::uint8_t { append_dummy_seq, extend_last };
enum class LrSchedule : std::uint8_t { constant, linear, cosine };
enum class GraphImpl : std::uint8_t { none, partial, full_iteration };
enum class GraphEvaluation : std::uint8_t { eager, replay };
enum class GraphModule : std::uint8_t { attn, mlp, moe, moe_router, moe_preprocess, mamba };
enum class OffloadModule : std::uint8_t {
  attn_norm,
  qkv_linear,
  core_attn,
  attn_proj,
  mlp_norm,
  mlp_fc1,
  expert_fc1,
  moe_act,
  mamba_in_proj,
  mamba_scan
};
enum class Sharding : std::uint8_t { no_shard, optim, optim_grads, optim_grads_params };
enum class Reduction : std::uint8_t { ordered, nccl };
enum class PipelineSchedule : std::uint8_t { one_forward_one_backward, interleaved, gpipe };
enum class Transport : std::uint8_t { automatic, local, shm, nccl };
enum class Poison : std::uint8_t { fresh, freed, padding, staging };
enum class DelayStream : std::uint8_t { compute, d2h, h2d, gather, reduce, graph, loader };
enum class ScheduleKind : std::uint8_t { program, random, pct };
enum class ExpectedVerdict : std::uint8_t { holds, violated, refused };
enum class Fp8Recipe : std::uint8_t { current, delayed };
enum class Fp8Algorithm : std::uint8_t { max, most_recent };
// The linear layers whose products fp8 replaces (docs/arithmetic.md, section 5).
enum class Fp8Layer : std::uint8_t {
  qkv_linear,
  attn_proj,
  mlp_fc1,
  mlp_fc2,
  mamba_in_proj,
  mamba_out_proj,
  expert_fc1,
  expert_fc2,
  shared_fc1,
  shared_fc2
};

// Documents of one microbatch: lengths in tokens. [step][global microbatch][document].
using MicrobatchLengths = std::vector<std::int64_t>;
using StepLengths = std::vector<MicrobatchLengths>;

struct Scenario {
  std::string name;
  std::string description;
  std::vector<Numerics> numerics{
      Numerics::fp32};  // Sets are kept in the order of the enum, without repeats.

  struct Model {
    std::string pattern = "M*-";
    std::int64_t hidden = 32;
    std::int64_t vocab = 64;  // 256 for data.kind text, jsonl; the reader fills that in.
    bool tied_embedding = false;
    double norm_eps = 1.0e-5;
    struct Attention {
      std::int64_t heads = 2, kv_heads = 1, head_dim = 16;
      double rope_base = 10000;
    } attention;
    struct Mamba {
      std::int64_t d_inner = 64, head_dim = 16, groups = 1, state = 16, conv_width = 4, chunk = 16;
    } mamba;
    struct Mlp {
      std::int64_t hidden = 64;
      MlpActivation activation = MlpActivation::squared_relu;
    } mlp;
    struct Moe {
      std::int64_t experts = 4, top_k = 2, hidden = 32, shared_hidden = 0;
      Router router = Router::softmax;
      bool expert_bias = false;
      std::optional<Ratio> capacity_factor = Ratio{2'000'000};  // nullopt = none = dropless.
      bool pad_to_capacity = true;
      bool host_sync = false;
      Ratio aux_loss, z_loss;
    } moe;
    Ratio dropout;
    std::vector<Recompute> recompute;
    CoreAttention core_attention = CoreAttention::native;
  } model;

  struct Data {
    DataKind kind = DataKind::lengths;
    std::int64_t pack_length = 64;
    std::vector<StepLengths> documents{{{17, 1, 0, 30}, {5, 16, 33}}, {{64}, {3, 4, 20, 15, 9}}};
    struct Distribution {
      Shape shape = Shape::uniform;
      std::int64_t min = 1, max = 32, median = 8;
      Ratio sigma{1'000'000}, empty, fill{900'000};
      std::int64_t seed = 1;
      // Shape histogram: pairs of documents and packs, documents increasing.
      std::vector<std::vector<std::int64_t>> histogram;
    } distribution;
    // As written; relative to the scenario's folder (see `folder`).
    std::string path = "documents";
    std::string digest;
    LongDocuments long_documents = LongDocuments::error;  // split for text, jsonl.
    struct Mask {
      bool document_end = true;
      std::int64_t prefix = 0;
      Ratio rate;
      std::vector<std::int64_t> microbatches;
      std::vector<std::string> roles{"assistant"};
    } mask;
    Tail tail = Tail::extend_last;
    std::int64_t align = 1;
    std::int64_t gaps = 0;
  } data;

  struct MicrobatchChange {
    std::int64_t step = 0, microbatches = 0;
    friend bool operator==(const MicrobatchChange&, const MicrobatchChange&) = default;
  };
  // Where a judged run is saved, destroyed and loaded.
  struct Resume {
    std::int64_t step = 0;
    std::int64_t microbatch = 0;  // The microbatches of the step, of all ranks, that are done.
    std::int64_t data = 0;        // The number of ranks from here on; 0: parallel.data.
    friend bool operator==(const Resume&, const Resume&) = default;
  };
  struct Training {
    std::int64_t steps = 3, microbatches = 2, in_flight = 2;
    struct Optimizer {
      double lr = 1.0e-3, min_lr = 0;
      LrSchedule schedule = LrSchedule::constant;
      std::int64_t lr_warmup = 0, decay_steps = 3;  // decay_steps: `steps` unless given.
      double weight_decay = 0.01;
      double beta1 = 0.9, beta2 = 0.95;
      double eps = 1.0e-8, clip = 1.0;
    } optimizer;
    std::int64_t seed = 1, eval_every = 0;
    std::vector<std::int64_t> recapture_at;
    std::vector<MicrobatchChange> change_microbatches_at;
    std::vector<Resume> resume_at;
    // Microbatches a rank runs in `step`.
    std::int64_t microbatches_at(std::int64_t step) const;
  } training;

  struct CudaGraph {
    GraphImpl impl = GraphImpl::partial;
    std::vector<GraphModule> modules;  // [] = whole layers.
    std::int64_t warmup_steps = 1;
    std::vector<std::int64_t> max_packed_seqs{8};  // Buckets, increasing.
    std::int64_t graph_memory_limit = 0;
    // The longest document that a captured launch is made for; nullopt = data.pack_length.
    std::optional<std::int64_t> max_seqlen;
    GraphEvaluation evaluation = GraphEvaluation::eager;
    std::int64_t capture_passes = 0;
    bool shared_memory = false;
  } cuda_graph;

  struct Offload {
    std::vector<OffloadModule> modules;
    Ratio fraction{1'000'000};
    std::int64_t min_bytes = 0;
    std::optional<std::int64_t> max_inflight;  // nullopt = unlimited.
    bool delay_until_cuda_graph = false;
    std::int64_t pool_slack = 0;
    bool captured = false;
    std::int64_t delta_bytes = 0;
  } offload;

  struct Fsdp {
    Sharding strategy = Sharding::no_shard;
    bool double_buffer = true, persist_buf_on_alloc_fail = true;
    std::vector<std::int64_t> unit{1};  // One number, or blocks per unit when `unit_is_list`.
    bool unit_is_list = false;
    std::int64_t prefetch = 1;
    Reduction reduction = Reduction::ordered;
    std::int64_t bucket_bytes = 0;
    bool nccl_ub = false;
  } fsdp;

  struct Parallel {
    std::int64_t data = 1, context = 1, tensor = 1, expert = 1, pipeline = 1;
    Transport transport = Transport::automatic;
    std::int64_t chunks = 1;  // Each stage has as many.
    PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
    std::int64_t group = 1;  // `pipeline` unless given.
  } parallel;

  struct Delay {
    DelayStream stream = DelayStream::compute;
    std::optional<std::int64_t> rank;  // nullopt = all.
    std::int64_t spin = 1;
  };
  struct Checker {
    bool hazards = true;
    std::vector<Poison> poison{Poison::fresh, Poison::freed};
    std::vector<Delay> delays;
    struct Schedule {
      ScheduleKind kind = ScheduleKind::random;
      std::int64_t depth = 1, seed = 1, count = 1;
    } schedule;
  } checker;

  struct CounterRule {
    std::optional<std::int64_t> min, max;  // An exact number has both.
    std::optional<Counter> same_as = {};
  };
  struct Expect {
    ExpectedVerdict verdict = ExpectedVerdict::holds;
    std::string error = "none";
    std::string judge = "none";
    std::map<Counter, CounterRule, ByName> counters;
  } expect;

  struct Fp8 {
    Fp8Recipe recipe = Fp8Recipe::current;
    std::int64_t history = 1024;
    Fp8Algorithm algorithm = Fp8Algorithm::max;
    std::int64_t margin = 0;
    std::vector<Fp8Layer> save_original_input;
    bool weight_cache = true, param_gather = false;
  } fp8;

  // Not a key: the folder that `data.path` is relative to. Not part of the canonical form.
  std::string folder;

  // The symbols of one block of the pattern: `*` directly followed by `-` or `E` is one block of
  // two.
  struct Block {
    int first = 0;  // Symbol index.
    int count = 1;
  };
  std::vector<Block> blocks() const;
};

}  // namespace lockstep
