#include "engine/parameters.h"

#include "kernels/optimizer.h"

namespace lockstep {

Parameters::Parameters(TensorPool& pool, const Scenario& scenario, bool copies)
    : copies_(copies),
      seed_low_(static_cast<std::uint32_t>(scenario.training.seed)),
      seed_high_(static_cast<std::uint32_t>(static_cast<std::uint64_t>(scenario.training.seed) >> 32)) {
  const Scenario::Model& model = scenario.model;
  const int layers = static_cast<int>(model.pattern.size());
  // There is no key for init_std: Megatron-LM's default, decided in docs/decisions.md.
  const float s = 0.02f;
  const Recipe in{.init = Init::normal, .std = s, .width = 0, .accumulates = true};
  Recipe out = in;
  out.std = div(s, sqrt(static_cast<float>(2 * layers)));

  add(pool, "embedding.weight", -1, model.vocab, model.hidden, {Init::normal, s, 0});
  for (int layer = 0; layer < layers; ++layer) {
    first_of_layer_.push_back(static_cast<int>(views_.size()));
    add_vector(pool, "norm.gain", layer, model.hidden, Init::one);
    switch (model.pattern[static_cast<std::size_t>(layer)]) {
      case 'M':
        add_mamba(pool, model, layer, in, out);
        break;
      case '*':
        add_attention(pool, model, layer, in, out);
        break;
      case '-':
        add_mlp(pool, model, layer, in, out);
        break;
      default:
        add_experts(pool, model, layer, in, out);
    }
  }
  final_gain_ = static_cast<int>(views_.size());
  add_vector(pool, "final_norm.gain", -1, model.hidden, Init::one);
  if (!model.tied_embedding) {
    head_ = static_cast<int>(views_.size());
    add(pool, "head.weight", -1, model.vocab, model.hidden, in);
  }
}

void Parameters::add_mamba(TensorPool& pool, const Scenario::Model& model, int layer, Recipe in, Recipe out) {
  const Scenario::Model::Mamba& m = model.mamba;
  const std::int64_t heads = m.d_inner / m.head_dim;
  const std::int64_t channels = m.d_inner + 2 * m.groups * m.state;
  add(pool, "in_proj.weight", layer, m.d_inner + channels + heads, model.hidden, in);
  add(pool, "conv.weight", layer, channels, m.conv_width,
      {Init::conv_weight, 0, static_cast<std::int32_t>(m.conv_width)});
  add_vector(pool, "conv.bias", layer, channels, Init::zero);
  add_vector(pool, "dt_bias", layer, heads, Init::dt_bias);
  add_vector(pool, "a_log", layer, heads, Init::a_log);
  add_vector(pool, "d", layer, heads, Init::one);
  add_vector(pool, "gated_norm.gain", layer, m.d_inner, Init::one);
  add(pool, "out_proj.weight", layer, model.hidden, m.d_inner, out);
}

void Parameters::add_attention(TensorPool& pool, const Scenario::Model& model, int layer, Recipe in, Recipe out) {
  const Scenario::Model::Attention& a = model.attention;
  add(pool, "qkv.weight", layer, (a.heads + 2 * a.kv_heads) * a.head_dim, model.hidden, in);
  add(pool, "proj.weight", layer, model.hidden, a.heads * a.head_dim, out);
}

void Parameters::add_mlp(TensorPool& pool, const Scenario::Model& model, int layer, Recipe in, Recipe out) {
  const std::int64_t width = model.mlp.hidden * (model.mlp.activation == MlpActivation::swiglu ? 2 : 1);
  add(pool, "fc1.weight", layer, width, model.hidden, in);
  add(pool, "fc2.weight", layer, model.hidden, model.mlp.hidden, out);
}

// Experts are stacked. The router reads its fp32 master in both numerics.
void Parameters::add_experts(TensorPool& pool, const Scenario::Model& model, int layer, Recipe in, Recipe out) {
  const Scenario::Model::Moe& m = model.moe;
  const std::int64_t gates = model.mlp.activation == MlpActivation::swiglu ? 2 : 1;
  Recipe router = in, expert_in = in, expert_out = out;
  router.copied = false;
  for (Recipe* own_add : {&router, &expert_in, &expert_out}) own_add->accumulates = false;
  add(pool, "router.weight", layer, m.experts, model.hidden, router);
  add(pool, "experts.fc1.weight", layer, m.experts * gates * m.hidden, model.hidden, expert_in);
  add(pool, "experts.fc2.weight", layer, m.experts * model.hidden, m.hidden, expert_out);
  if (m.shared_hidden == 0) return;
  add(pool, "shared.fc1.weight", layer, gates * m.shared_hidden, model.hidden, in);
  add(pool, "shared.fc2.weight", layer, model.hidden, m.shared_hidden, out);
}

void Parameters::add(TensorPool& pool, const std::string& name, int layer, std::int64_t rows, std::int64_t cols,
                     Recipe recipe) {
  const std::string prefix = layer < 0 ? "" : "layers." + std::to_string(layer) + ".";
  ParameterView view;
  view.name = prefix + name;
  view.layer = layer;
  view.index = static_cast<int>(views_.size());
  view.full_rows = rows;
  view.full_cols = cols;
  for (Tensor<float>* member : {&view.weight, &view.gradient, &view.m, &view.v}) {
    *member = pool.make<float>(rows, cols);
  }
  if (!recipe.accumulates) view.microbatch_gradient = pool.make<float>(rows, cols);
  // Every weight of a bf16 product is drawn from a normal distribution.
  if (copies_ && recipe.init == Init::normal && recipe.copied) view.copy = pool.make<bf16>(rows, cols);
  views_.push_back(view);
  recipes_.push_back(recipe);
  norm_rows_ += rows;
}

void Parameters::add_vector(TensorPool& pool, const std::string& name, int layer, std::int64_t size, Init init) {
  add(pool, name, layer, 1, size, {init, 0, 0});
  views_.back().is_vector = true;
  norm_rows_ += size - 1;
}

void Parameters::initialize(const Stream& stream) const {
  for (std::size_t i = 0; i < views_.size(); ++i) {
    stream.submit(Initialize{.w = views_[i].weight,
                             .kind = recipes_[i].init,
                             .std = recipes_[i].std,
                             .width = recipes_[i].width,
                             .parameter = static_cast<std::uint32_t>(i),
                             .seed_low = seed_low_,
                             .seed_high = seed_high_});
    stream.submit(ZeroGradient{.acc = views_[i].m});
    stream.submit(ZeroGradient{.acc = views_[i].v});
    stream.submit(ZeroGradient{.acc = views_[i].gradient});
  }
  round(stream);
}

void Parameters::round(const Stream& stream) const {
  for (const ParameterView& view : views_) {
    if (view.copy) stream.submit(RoundWeights{.w = view.weight, .copy = view.copy});
  }
}

}  // namespace lockstep
