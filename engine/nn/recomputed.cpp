#include "engine/nn/recomputed.h"

#include <algorithm>

#include "engine/nn/mamba.h"
#include "engine/nn/moe.h"
#include "kernels/core/fault.h"
#include "kernels/core/row_segments.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/fp8.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// For a planted fault: more than the models of the scenarios that show it have.
constexpr int kMostParameters = 64;

std::int64_t gates(const Scenario::Model& model) {
  return model.mlp.activation == MlpActivation::swiglu ? 2 : 1;
}

}  // namespace

template <class T>
Recomputed<T>::Recomputed(TensorPool& pool, const Scenario& scenario) {
  const Scenario::Model& model = scenario.model;
  const std::int64_t rows = scenario.data.pack_length;
  const auto asked = [&](Recompute module) {
    return std::find(model.recompute.begin(), model.recompute.end(), module) !=
           model.recompute.end();
  };
  core_attn = asked(Recompute::core_attn);
  mlp = asked(Recompute::mlp);
  mamba = asked(Recompute::mamba);
  moe = asked(Recompute::moe);
  if (multiplies_fp8(scenario)) add_codes(pool, scenario);
  if (asked(Recompute::layernorm)) norm = pool.make<T>(rows, model.hidden);
  if (mlp || mamba || moe) mixed = pool.make<T>(rows, model.hidden);
  if (core_attn) {
    core = pool.make<T>(rows, model.attention.heads * model.attention.head_dim);
    lse = pool.make<float>(rows, model.attention.heads);
  }
  if (mlp) mlp_fc1 = pool.make<T>(rows, gates(model) * model.mlp.hidden);
  if (mlp || asked(Recompute::mlp_act)) mlp_act = pool.make<T>(rows, model.mlp.hidden);
  if (mamba) add_mamba(pool, scenario);
  if (moe) add_experts(pool, scenario);
  if (!moe && !asked(Recompute::moe_act)) return;
  moe_act = pool.make<T>(ExpertBuffer(scenario).owner_rows, model.moe.hidden);
  if (model.moe.shared_hidden > 0) shared_act = pool.make<T>(rows, model.moe.shared_hidden);
}

template <class T>
void Recomputed<T>::add_codes(TensorPool& pool, const Scenario& scenario) {
  struct Input {
    std::int64_t rows, cols, segments = 1;
  };
  const Scenario::Model& model = scenario.model;
  const std::int64_t rows = scenario.data.pack_length, experts = model.moe.experts;
  const std::int64_t buffer = has_layer(scenario, 'E') ? ExpertBuffer(scenario).owner_rows : 0;
  const std::map<Fp8Layer, Input> inputs{
      {Fp8Layer::qkv_linear, {rows, model.hidden}},
      {Fp8Layer::attn_proj, {rows, model.attention.heads * model.attention.head_dim}},
      {Fp8Layer::mlp_fc1, {rows, model.hidden}},
      {Fp8Layer::mlp_fc2, {rows, model.mlp.hidden}},
      {Fp8Layer::mamba_in_proj, {rows, model.hidden}},
      {Fp8Layer::mamba_out_proj, {rows, model.mamba.d_inner}},
      {Fp8Layer::expert_fc1, {buffer, model.hidden, experts}},
      {Fp8Layer::expert_fc2, {buffer, model.moe.hidden, experts}},
      {Fp8Layer::shared_fc1, {rows, model.hidden}},
      {Fp8Layer::shared_fc2, {rows, model.moe.shared_hidden}}};
  for (const Fp8Layer layer : scenario.fp8.save_original_input) {
    const Input& x = inputs.at(layer);
    codes_[layer] = pool.make<e4m3>(x.cols, transposed_columns(x.rows, x.segments));
  }
  const int shared = faulty("fp8-exponents-shared-by-slots", 0, kMostParameters);
  for (int parameter = 0; parameter < shared; ++parameter)
    words_[parameter] = pool.make<std::uint32_t>(2, experts);
  for (const auto& [layer, x] : inputs) {
    const bool passes = has_fp8_layer(model, layer) && passes_input(scenario, layer);
    const bool shares = faulty("fp8-input-is-saved-too", passes, false);
    if (shares) passing_[layer] = tensor(static_cast<T*>(nullptr), x.rows, x.cols);
  }
}

// Each is read by the product behind it, and is gone before the next one is written.
template <class T>
void Recomputed<T>::place_passing(TensorPool& pool, Tensor<T> free) {
  std::int64_t most = 0;
  for (const auto& [layer, x] : passing_) most = std::max(most, x.size());
  if (most == 0) return;
  const bool fits = free.data != nullptr && free.size() >= most;
  T* const memory = fits ? free.data : pool.make<T>(1, most).data;
  for (auto& [layer, x] : passing_) x.data = memory;
}

template <class T>
void Recomputed<T>::add_mamba(TensorPool& pool, const Scenario& scenario) {
  const MambaShape shape(scenario.model.mamba);
  const std::int64_t rows = scenario.data.pack_length;
  in_proj = pool.make<T>(rows, shape.d_inner + shape.channels + shape.heads);
  conv = pool.make<T>(rows, shape.channels);
  scan = pool.make<T>(rows, shape.d_inner);
  gated = pool.make<T>(rows, shape.d_inner);
  gated_rstd = pool.make<float>(rows, shape.groups);
}

template <class T>
void Recomputed<T>::add_experts(TensorPool& pool, const Scenario& scenario) {
  const Scenario::Model& model = scenario.model;
  const Scenario::Model::Moe& m = model.moe;
  const std::int64_t tokens = scenario.data.pack_length;
  const ExpertBuffer buffer(scenario);
  router_logits = pool.make<float>(tokens, m.experts);
  router_scores = pool.make<float>(tokens, m.experts);
  router_lse = pool.make<float>(1, tokens);
  router_weights = pool.make<float>(tokens, m.top_k);
  dispatched = pool.make<T>(buffer.rows, model.hidden);
  if (expert_ranks(scenario) > 1) owned = pool.make<T>(buffer.owner_rows, model.hidden);
  expert_fc1 = pool.make<T>(buffer.owner_rows, gates(model) * m.hidden);
  expert_out = pool.make<T>(buffer.rows, model.hidden);
  if (m.shared_hidden == 0) return;
  shared_fc1 = pool.make<T>(tokens, gates(model) * m.shared_hidden);
  shared_out = pool.make<T>(tokens, model.hidden);
}

template struct Recomputed<float>;
template struct Recomputed<bf16>;

}  // namespace lockstep
