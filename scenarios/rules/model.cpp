// L01..L06: widths, heads and experts. They look only at layer kinds that the pattern has.
#include "scenarios/documents/layout.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

using std::to_string;

Findings kv_heads_divide_heads(const Scenario& scenario) {
  const auto& attention = scenario.model.attention;
  if (!has_layer(scenario, '*') || attention.heads % attention.kv_heads == 0) return {};
  return {{"model.attention.kv_heads",
           to_string(nearest_divisor(attention.kv_heads, attention.heads)),
           to_string(attention.kv_heads) + " of " + to_string(attention.heads)}};
}

Findings mamba_heads_are_whole(const Scenario& scenario) {
  const auto& mamba = scenario.model.mamba;
  if (!has_layer(scenario, 'M')) return {};
  Findings findings;
  std::int64_t inner = mamba.d_inner;
  if (inner % mamba.head_dim != 0) {
    inner = nearest_multiple(inner, mamba.head_dim);
    findings.push_back({"model.mamba.d_inner", to_string(inner),
                        to_string(mamba.d_inner) + " in heads of " + to_string(mamba.head_dim)});
  }
  const std::int64_t heads = inner / mamba.head_dim;
  if (heads % mamba.groups != 0) {
    findings.push_back({"model.mamba.groups", to_string(nearest_divisor(mamba.groups, heads)),
                        to_string(mamba.groups) + " groups of " + to_string(heads) + " heads"});
  }
  return findings;
}

Findings bf16_widths_fill_rows(const Scenario& scenario) {
  const bool is_fp8 = holds(scenario.numerics, Numerics::fp8);
  if (!is_fp8 && !holds(scenario.numerics, Numerics::bf16)) return {};
  const std::int64_t width = is_fp8 ? 16 : 8;
  Findings findings;
  const auto multiple = [&](const char* key, std::int64_t value, std::int64_t step) {
    if (value % step == 0) return;
    findings.push_back({key, to_string(nearest_multiple(value, step)),
                        to_string(value) + " is no multiple of " + to_string(step)});
  };
  const Scenario::Model& model = scenario.model;
  multiple("model.hidden", model.hidden, width);
  multiple("model.vocab", model.vocab, 8);
  if (has_layer(scenario, '*')) multiple("model.attention.head_dim", model.attention.head_dim, 16);
  if (has_layer(scenario, 'M')) {
    // Whole heads of a legal size, so that L02 takes it too.
    const std::int64_t head = model.mamba.head_dim % 16 == 0
                                  ? model.mamba.head_dim
                                  : nearest_multiple(model.mamba.head_dim, 16);
    if (model.mamba.d_inner % width != 0) {
      findings.push_back(
          {"model.mamba.d_inner", to_string(nearest_multiple(model.mamba.d_inner, head)),
           to_string(model.mamba.d_inner) + " is no multiple of " + to_string(width)});
    }
    multiple("model.mamba.head_dim", model.mamba.head_dim, 16);
    multiple("model.mamba.state", model.mamba.state, 16);
    multiple("model.mamba.chunk", model.mamba.chunk, 16);
  }
  if (has_layer(scenario, '-')) multiple("model.mlp.hidden", model.mlp.hidden, width);
  if (has_layer(scenario, 'E')) {
    multiple("model.moe.hidden", model.moe.hidden, width);
    multiple("model.moe.shared_hidden", model.moe.shared_hidden, width);
  }
  multiple("data.pack_length", scenario.data.pack_length, 16);
  return findings;
}

Findings bytes_need_256_tokens(const Scenario& scenario) {
  if (!reads_bytes(scenario.data) || scenario.model.vocab >= 256) return {};
  return {{"model.vocab", "256", to_string(scenario.model.vocab)}};
}

Findings cudnn_needs_bf16_and_attention(const Scenario& scenario) {
  if (scenario.model.core_attention != CoreAttention::cudnn) return {};
  Findings findings;
  if (scenario.numerics != std::vector{Numerics::bf16})
    findings.push_back({"numerics", "[bf16]", set_text(scenario.numerics)});
  if (!has_layer(scenario, '*'))
    findings.push_back({"model.core_attention", "native", "no * in the pattern"});
  return findings;
}

Findings top_k_within_experts(const Scenario& scenario) {
  const auto& moe = scenario.model.moe;
  if (!has_layer(scenario, 'E') || moe.top_k <= moe.experts) return {};
  return {{"model.moe.top_k", to_string(moe.experts),
           to_string(moe.top_k) + " of " + to_string(moe.experts)}};
}

Findings expert_bias_needs_sigmoid(const Scenario& scenario) {
  const auto& moe = scenario.model.moe;
  if (!has_layer(scenario, 'E') || !moe.expert_bias || moe.router == Router::sigmoid) return {};
  return {{"model.moe.router", "sigmoid", ""}};
}

Findings padding_needs_a_capacity(const Scenario& scenario) {
  const auto& moe = scenario.model.moe;
  if (!has_layer(scenario, 'E') || !moe.pad_to_capacity || moe.capacity_factor) return {};
  return {{"model.moe.pad_to_capacity", "false", ""}};
}

}  // namespace

std::span<const Rule> model_rules() {
  static constexpr Rule kRules[] = {
      {"L01", "kv_heads must divide heads", "a query head has one kv head", kv_heads_divide_heads,
       "model.attention.heads model.attention.kv_heads",
       "model: {attention: {heads: 4, kv_heads: 3}}"},
      {"L02", "mamba.head_dim must divide d_inner, and groups the number of heads",
       "heads and groups are whole", mamba_heads_are_whole,
       "model.mamba.d_inner model.mamba.head_dim model.mamba.groups",
       "model: {mamba: {d_inner: 60}}"},
      {"L03",
       "bf16, fp8: hidden, d_inner, vocab and MLP widths are multiples of 8, in fp8 all but vocab "
       "of "
       "16; head_dims, state, chunk, pack_length of 16",
       "rows of 16 bytes, k16 groups. Derived widths are padded by the engine",
       bf16_widths_fill_rows,
       "numerics model.hidden model.vocab model.attention.head_dim model.mamba.d_inner "
       "model.mamba.head_dim "
       "model.mamba.state model.mamba.chunk model.mlp.hidden model.moe.hidden "
       "model.moe.shared_hidden data.pack_length",
       "numerics: [bf16], model: {hidden: 36}"},
      {"L04", "byte tokens need vocab >= 256", "256 byte values", bytes_need_256_tokens,
       "model.vocab data.kind", "data: {kind: text}, model: {vocab: 64}"},
      {"L05", "cudnn needs numerics [bf16] and a `*`", "no fp32 kernel; else vacuous",
       cudnn_needs_bf16_and_attention, "model.core_attention numerics model.pattern",
       "model: {core_attention: cudnn}"},
      {"L06", "top_k must not exceed experts", "no k-th expert", top_k_within_experts,
       "model.moe.top_k model.moe.experts", "model: {pattern: \"*E\", moe: {top_k: 5}}"},
      {"L06", "expert_bias needs sigmoid", "bias is defined on sigmoid scores",
       expert_bias_needs_sigmoid, "model.moe.expert_bias model.moe.router",
       "model: {pattern: \"*E\", moe: {expert_bias: true}}"},
      {"L06", "pad_to_capacity needs a capacity_factor", "no capacity to pad to",
       padding_needs_a_capacity, "model.moe.pad_to_capacity model.moe.capacity_factor",
       "model: {pattern: \"*E\", moe: {capacity_factor: none, pad_to_capacity: true}}, cuda_graph: "
       "{modules: [attn]}"},
  };
  return kRules;
}

}  // namespace lockstep
