// The reference model with every rounding in double.
#include "oracle/model/initialize.h"
#include "oracle/model/reference_model.h"
#include "oracle/oracle.h"

namespace lockstep::oracle {
namespace {

std::vector<std::vector<double>> widened_start(const Scenario& scenario, const Layout& layout) {
  std::vector<std::vector<double>> weights;
  const auto layers = static_cast<std::int64_t>(scenario.model.pattern.size());
  for (std::size_t p = 0; p < layout.parameters.size(); ++p) {
    const std::vector<float> narrow =
        initial_weight(layout.parameters[p], static_cast<std::uint32_t>(p), layers,
                       scenario.training.seed, Mutant());
    weights.emplace_back(narrow.begin(), narrow.end());
  }
  return weights;
}

}  // namespace

DoubleResult run_in_double(const Scenario& scenario, const Microbatch& microbatch,
                           const std::vector<std::vector<double>>& weights, std::int64_t step,
                           const std::vector<std::vector<double>>& expert_bias) {
  const Scenario::Model& model = scenario.model;
  const Layout layout = make_layout(model);
  const std::vector<std::vector<double>> start =
      weights.empty() ? widened_start(scenario, layout) : weights;
  const auto rope = make_rope_table<double>(scenario.data.pack_length, model.attention.head_dim,
                                            model.attention.rope_base);
  const PackedBatch pack = make_pack(scenario, microbatch, Mutant());
  std::int64_t targets = 0;
  for (const std::int32_t target : pack.targets) targets += target >= 0 ? 1 : 0;

  Saved<double> saved(model.pattern.size());
  DoubleResult result;
  result.gradients.resize(layout.parameters.size());
  const auto bias = expert_bias.empty() ? no_expert_bias<double>(model) : expert_bias;
  ReferenceModel<Fp64> walk({model, layout, rope, pack, start, bias, 1.0, result.gradients,
                             result.experts, saved, Mutant()},
                            {model.dropout.value(), scenario.training.seed, step});
  result.loss = walk.forward(div(1.0, static_cast<double>(targets == 0 ? 1 : targets)), true);
  walk.backward();
  return result;
}

}  // namespace lockstep::oracle
