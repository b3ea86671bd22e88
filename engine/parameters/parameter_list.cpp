#include "engine/parameters/parameter_list.h"

#include "kernels/core/at.h"
#include "kernels/core/contract.h"
#include "scenarios/expert_ranks.h"

namespace lockstep {

ExpertPlace expert_place(const Scenario& scenario, int rank) {
  const std::int64_t ranks = expert_ranks(scenario);
  return {ranks, rank % ranks};
}

ParameterList::ParameterList(const Scenario::Model& model, ExpertPlace place) {
  const int layers = static_cast<int>(model.pattern.size());
  // There is no key for init_std: Megatron-LM's default, decided in docs/decisions.md.
  const float s = 0.02f;
  const Recipe in{.init = Init::normal, .std = s, .width = 0, .accumulates = true};
  Recipe out = in;
  out.std = div(s, sqrt(static_cast<float>(2 * layers)));

  // A tied one holds the head's part of g_m until its own joins it.
  add("embedding.weight", -1, model.vocab, model.hidden,
      {.init = Init::normal, .std = s, .width = 0, .accumulates = !model.tied_embedding});
  for (int layer = 0; layer < layers; ++layer) {
    first_of_layer.push_back(static_cast<int>(specs.size()));
    add_vector("norm.gain", layer, model.hidden, Init::one);
    switch (at(model.pattern, layer)) {
      case 'M':
        add_mamba(model, layer, in, out);
        break;
      case '*':
        add_attention(model, layer, in, out);
        break;
      case '-':
        add_mlp(model, layer, in, out);
        break;
      default:
        add_experts(model, place, layer, in, out);
    }
  }
  final_gain = static_cast<int>(specs.size());
  add_vector("final_norm.gain", -1, model.hidden, Init::one);
  if (!model.tied_embedding) {
    head = static_cast<int>(specs.size());
    add("head.weight", -1, model.vocab, model.hidden, in);
  }
}

void ParameterList::add_mamba(const Scenario::Model& model, int layer, Recipe in, Recipe out) {
  const Scenario::Model::Mamba& m = model.mamba;
  const std::int64_t heads = m.d_inner / m.head_dim;
  const std::int64_t channels = m.d_inner + 2 * m.groups * m.state;
  add("in_proj.weight", layer, m.d_inner + channels + heads, model.hidden, in);
  specs.back().fp8_layer = Fp8Layer::mamba_in_proj;
  add("conv.weight", layer, channels, m.conv_width,
      {Init::conv_weight, 0, static_cast<std::int32_t>(m.conv_width)});
  add_vector("conv.bias", layer, channels, Init::zero);
  add_vector("dt_bias", layer, heads, Init::dt_bias);
  add_vector("a_log", layer, heads, Init::a_log);
  add_vector("d", layer, heads, Init::one);
  add_vector("gated_norm.gain", layer, m.d_inner, Init::one);
  add("out_proj.weight", layer, model.hidden, m.d_inner, out);
  specs.back().fp8_layer = Fp8Layer::mamba_out_proj;
}

void ParameterList::add_attention(const Scenario::Model& model, int layer, Recipe in, Recipe out) {
  const Scenario::Model::Attention& a = model.attention;
  add("qkv.weight", layer, (a.heads + 2 * a.kv_heads) * a.head_dim, model.hidden, in);
  specs.back().fp8_layer = Fp8Layer::qkv_linear;
  add("proj.weight", layer, model.hidden, a.heads * a.head_dim, out);
  specs.back().fp8_layer = Fp8Layer::attn_proj;
}

void ParameterList::add_mlp(const Scenario::Model& model, int layer, Recipe in, Recipe out) {
  const std::int64_t width =
      model.mlp.hidden * (model.mlp.activation == MlpActivation::swiglu ? 2 : 1);
  add("fc1.weight", layer, width, model.hidden, in);
  specs.back().fp8_layer = Fp8Layer::mlp_fc1;
  add("fc2.weight", layer, model.hidden, model.mlp.hidden, out);
  specs.back().fp8_layer = Fp8Layer::mlp_fc2;
}

// Experts are stacked. The router reads its fp32 master in both numerics.
void ParameterList::add_experts(const Scenario::Model& model, ExpertPlace place, int layer,
                                Recipe in, Recipe out) {
  const Scenario::Model::Moe& m = model.moe;
  const std::int64_t own = m.experts / place.ranks;
  const std::int64_t gates = model.mlp.activation == MlpActivation::swiglu ? 2 : 1;
  Recipe router = in, expert_in = in, expert_out = out;
  router.copied = false;
  for (Recipe* own_add : {&router, &expert_in, &expert_out}) own_add->accumulates = false;
  add("router.weight", layer, m.experts, model.hidden, router);
  add("experts.fc1.weight", layer, own * gates * m.hidden, model.hidden, expert_in);
  specs.back().fp8_layer = Fp8Layer::expert_fc1;
  specs.back().experts = own;
  specs.back().place = place;
  add("experts.fc2.weight", layer, own * model.hidden, m.hidden, expert_out);
  specs.back().fp8_layer = Fp8Layer::expert_fc2;
  specs.back().experts = own;
  specs.back().place = place;
  if (m.shared_hidden == 0) return;
  add("shared.fc1.weight", layer, gates * m.shared_hidden, model.hidden, in);
  specs.back().fp8_layer = Fp8Layer::shared_fc1;
  add("shared.fc2.weight", layer, model.hidden, m.shared_hidden, out);
  specs.back().fp8_layer = Fp8Layer::shared_fc2;
}

// Every weight of a bf16 product is drawn from a normal distribution.
void ParameterList::add(const std::string& name, int layer, std::int64_t rows, std::int64_t cols,
                        Recipe recipe) {
  specs.push_back({.name = (layer < 0 ? "" : "layers." + std::to_string(layer) + ".") + name,
                   .layer = layer,
                   .index = static_cast<int>(specs.size()),
                   .rows = rows,
                   .cols = cols,
                   .init = recipe.init,
                   .std = recipe.std,
                   .width = recipe.width,
                   .copied = recipe.init == Init::normal && recipe.copied,
                   .accumulates = recipe.accumulates});
}

void ParameterList::add_vector(const std::string& name, int layer, std::int64_t size, Init init) {
  add(name, layer, 1, size, {init, 0, 0});
  specs.back().is_vector = true;
}

}  // namespace lockstep
