#include "scenarios/fp8.h"

#include <algorithm>
#include <map>

namespace lockstep {

bool has_fp8_layer(const Scenario::Model& model, Fp8Layer layer) {
  const auto has = [&](char symbol) { return model.pattern.find(symbol) != std::string::npos; };
  switch (layer) {
    case Fp8Layer::qkv_linear:
    case Fp8Layer::attn_proj:
      return has('*');
    case Fp8Layer::mlp_fc1:
    case Fp8Layer::mlp_fc2:
      return has('-');
    case Fp8Layer::mamba_in_proj:
    case Fp8Layer::mamba_out_proj:
      return has('M');
    case Fp8Layer::expert_fc1:
    case Fp8Layer::expert_fc2:
      return has('E');
    case Fp8Layer::shared_fc1:
    case Fp8Layer::shared_fc2:
      return has('E') && model.moe.shared_hidden > 0;
  }
  return false;
}

std::vector<Fp8Layer> implied_original_inputs(const Scenario::Model& model) {
  using enum Fp8Layer;
  static const std::map<Recompute, std::vector<Fp8Layer>> implied{
      {Recompute::layernorm, {qkv_linear, mlp_fc1, mamba_in_proj, shared_fc1}},
      {Recompute::mlp_act, {mlp_fc2}},
      {Recompute::moe_act, {expert_fc2, shared_fc2}},
      {Recompute::core_attn, {attn_proj}},
      {Recompute::mlp, {mlp_fc1, mlp_fc2}},
      {Recompute::mamba, {mamba_in_proj, mamba_out_proj}},
      {Recompute::moe, {expert_fc1, expert_fc2, shared_fc1, shared_fc2}}};
  std::vector<Fp8Layer> layers;
  for (const Recompute word : model.recompute) {
    for (const Fp8Layer layer : implied.at(word)) {
      if (has_fp8_layer(model, layer)) layers.push_back(layer);
    }
  }
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return layers;
}

bool default_weight_cache(const Scenario& scenario) {
  return scenario.fsdp.strategy != Sharding::optim_grads_params || scenario.fp8.param_gather;
}

bool gathers_fp8_codes(const Scenario& scenario) {
  return scenario.numerics.front() == Numerics::fp8 && scenario.fp8.param_gather &&
         scenario.fsdp.strategy != Sharding::no_shard;
}

bool saves_codes(const Scenario& scenario, Fp8Layer layer) {
  const std::vector<Fp8Layer>& originals = scenario.fp8.save_original_input;
  return scenario.numerics.front() == Numerics::fp8 &&
         std::find(originals.begin(), originals.end(), layer) == originals.end();
}

std::optional<Fp8Layer> reader_of_norm(char symbol) {
  switch (symbol) {
    case '*':
      return Fp8Layer::qkv_linear;
    case '-':
      return Fp8Layer::mlp_fc1;
    case 'M':
      return Fp8Layer::mamba_in_proj;
    default:
      return {};
  }
}

bool passes_input(const Scenario& scenario, Fp8Layer layer) {
  using enum Fp8Layer;
  const bool has_another_reader = layer == attn_proj || layer == shared_fc1;
  return !has_another_reader && saves_codes(scenario, layer);
}

}  // namespace lockstep
