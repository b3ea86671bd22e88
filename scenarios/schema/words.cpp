#include "scenarios/schema/words.h"

namespace lockstep {

#define LOCKSTEP_WORDS(Enum, ...)                            \
  template <>                                                \
  const std::vector<std::string>& words<Enum>() {            \
    static const std::vector<std::string> list{__VA_ARGS__}; \
    return list;                                             \
  }

LOCKSTEP_WORDS(Numerics, "fp32", "bf16", "fp8")
LOCKSTEP_WORDS(MlpActivation, "squared_relu", "swiglu")
LOCKSTEP_WORDS(Router, "softmax", "sigmoid")
LOCKSTEP_WORDS(Recompute, "layernorm", "mlp_act", "moe_act", "core_attn", "mlp", "mamba", "moe")
LOCKSTEP_WORDS(CoreAttention, "native", "cudnn")
LOCKSTEP_WORDS(DataKind, "lengths", "distribution", "text", "jsonl")
LOCKSTEP_WORDS(Shape, "uniform", "lognormal", "equal", "one_giant", "many_tiny", "measured",
               "published", "histogram")
LOCKSTEP_WORDS(LongDocuments, "split", "truncate", "error")
LOCKSTEP_WORDS(Tail, "append_dummy_seq", "extend_last")
LOCKSTEP_WORDS(LrSchedule, "constant", "linear", "cosine")
LOCKSTEP_WORDS(GraphImpl, "none", "partial", "full_iteration")
LOCKSTEP_WORDS(GraphEvaluation, "eager", "replay")
LOCKSTEP_WORDS(GraphModule, "attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba")
LOCKSTEP_WORDS(OffloadModule, "attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm",
               "mlp_fc1", "expert_fc1", "moe_act", "mamba_in_proj", "mamba_scan")
LOCKSTEP_WORDS(Sharding, "no_shard", "optim", "optim_grads", "optim_grads_params")
LOCKSTEP_WORDS(Reduction, "ordered", "nccl")
LOCKSTEP_WORDS(PipelineSchedule, "1f1b", "interleaved", "gpipe")
LOCKSTEP_WORDS(Transport, "auto", "local", "shm", "nccl")
LOCKSTEP_WORDS(Poison, "fresh", "freed", "padding", "staging")
LOCKSTEP_WORDS(DelayStream, "compute", "d2h", "h2d", "gather", "reduce", "graph", "loader")
LOCKSTEP_WORDS(ScheduleKind, "program", "random", "pct")
LOCKSTEP_WORDS(ExpectedVerdict, "holds", "violated", "refused")
LOCKSTEP_WORDS(Fp8Recipe, "current", "delayed")
LOCKSTEP_WORDS(Fp8Algorithm, "max", "most_recent")
LOCKSTEP_WORDS(Fp8Layer, "qkv_linear", "attn_proj", "mlp_fc1", "mlp_fc2", "mamba_in_proj",
               "mamba_out_proj", "expert_fc1", "expert_fc2", "shared_fc1", "shared_fc2")
#undef LOCKSTEP_WORDS

const std::vector<std::string>& counter_names() {
  static const std::vector<std::string> list = [] {
    std::vector<std::string> names;
    for (int i = 0; i <= static_cast<int>(Counter::amax_exchanges); ++i)
      names.push_back(to_text(static_cast<Counter>(i)));
    return names;
  }();
  return list;
}

const std::vector<std::string>& rule_names() {
  static const std::vector<std::string> list = [] {
    std::vector<std::string> names{"none"};
    const auto number = [](int i) { return std::string(i < 10 ? "0" : "") + std::to_string(i); };
    for (int i = 1; i <= 8; ++i) names.push_back("Y" + number(i));
    for (int i = 0; i <= 56; ++i) names.push_back("L" + number(i));
    return names;
  }();
  return list;
}

const char* to_text(Numerics value) { return word(value).c_str(); }
const char* to_text(GraphImpl value) { return word(value).c_str(); }
const char* to_text(GraphModule value) { return word(value).c_str(); }

}  // namespace lockstep
