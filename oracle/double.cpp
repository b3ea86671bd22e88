// The reference model with every rounding in double.
#include "oracle/arithmetic/nudged.h"
#include "oracle/model/initialize.h"
#include "oracle/model/reference_model.h"
#include "oracle/oracle.h"

namespace lockstep::oracle {
namespace {

// Neighbouring seeds begin far from each other by this odd factor.
constexpr std::uint64_t kSpread = 0x9e37'79b9'7f4a'7c15u;

using Weights = std::vector<std::vector<double>>;

Weights widened_start(const Scenario& scenario, const Layout& layout) {
  Weights weights;
  const auto layers = static_cast<std::int64_t>(scenario.model.pattern.size());
  for (std::size_t p = 0; p < layout.parameters.size(); ++p) {
    const std::vector<float> narrow =
        initial_weight(layout.parameters[p], static_cast<std::uint32_t>(p), layers,
                       scenario.training.seed, Mutant());
    weights.emplace_back(narrow.begin(), narrow.end());
  }
  return weights;
}

// Weights as the numerics reads them: copies in bf16, moved by a unit where the pass is nudged.
Weights read_weights(const Layout& layout, Weights weights, const DoublePass& pass) {
  for (std::size_t p = 0; p < weights.size(); ++p) {
    for (double& value : weights[p]) {
      if (pass.numerics == Numerics::bf16 && layout.parameters[p].has_copy())
        value = Bf16::st(static_cast<float>(value));
      if (pass.nudge != 0) value = Nudged::st(value);
    }
  }
  return weights;
}

// Angles are products in fp32 in both numerics; a base that moves moves them all.
double rope_base(const Scenario& scenario, const DoublePass& pass) {
  const double base = scenario.model.attention.rope_base;
  const double unit = unit_in_the_last_place(base, Nudged::kBitsOfFp32);
  return pass.nudge == 0 ? base : pass.nudge % 2 == 0 ? base + unit : base - unit;
}

std::vector<DoubleTensor> tensors(Saved<double>& saved) {
  std::vector<DoubleTensor> list;
  const int layers = static_cast<int>(saved.last()) - 1;
  for (int place = 0; place <= layers + 1; ++place) {
    const bool inside = place > 0 && place <= layers;
    const std::string prefix = inside ? "layers." + std::to_string(place - 1) + "." : "";
    for (NamedMatrix<double>& entry : saved.places()[place]) {
      Matrix<double>& matrix = entry.matrix;
      list.push_back({prefix + entry.name, inside ? place - 1 : -1, matrix.rows, matrix.cols,
                      std::move(matrix.values)});
    }
  }
  return list;
}

}  // namespace

DoubleResult run_in_double(const Scenario& scenario, const Microbatch& microbatch,
                           const DoublePass& pass) {
  const Scenario::Model& model = scenario.model;
  const Layout layout = make_layout(model);
  const int bits = pass.numerics == Numerics::bf16 ? Nudged::kBitsOfBf16 : Nudged::kBitsOfFp32;
  Nudged::chance = {.state = pass.nudge * kSpread, .bits = bits};
  const Weights weights = read_weights(
      layout, pass.weights.empty() ? widened_start(scenario, layout) : pass.weights, pass);
  Nudged::chance.state = (pass.nudge + kSpread * (pass.number + 1)) * kSpread;
  const auto rope = make_rope_table<double>(scenario.data.pack_length, model.attention.head_dim,
                                            rope_base(scenario, pass));
  const PackedBatch pack = make_pack(scenario, microbatch, Mutant());
  std::int64_t targets = 0;
  for (const std::int32_t target : pack.targets) targets += target >= 0 ? 1 : 0;
  const double scale = pass.loss_scale != 0 ? pass.loss_scale
                                            : 1.0 / static_cast<double>(targets == 0 ? 1 : targets);

  Saved<double> saved(model.pattern.size());
  DoubleResult result;
  result.gradients.resize(layout.parameters.size());
  const auto bias = pass.expert_bias.empty() ? no_expert_bias<double>(model) : pass.expert_bias;
  const auto walk_as = [&]<class Precision>(Precision) {
    ReferenceModel<Precision> walk(
        {model, layout, rope, pack, weights, bias, 1.0 / static_cast<double>(pass.microbatches),
         result.gradients, result.experts, saved, Mutant()},
        {model.dropout.value(), scenario.training.seed, pass.step});
    result.loss = walk.forward(scale, true);
    walk.backward();
  };
  if (pass.nudge == 0) {
    walk_as(Fp64());
  } else {
    walk_as(Nudged());
  }
  result.activations = tensors(saved);
  return result;
}

DoubleResult run_in_double(const Scenario& scenario, const Microbatch& microbatch,
                           const std::vector<std::vector<double>>& weights, std::int64_t step,
                           const std::vector<std::vector<double>>& expert_bias) {
  return run_in_double(scenario, microbatch,
                       DoublePass{.weights = weights, .expert_bias = expert_bias, .step = step});
}

std::vector<std::string> parameter_names(const Scenario& scenario) {
  std::vector<std::string> names;
  for (const ParameterLayout& one : make_layout(scenario.model).parameters)
    names.push_back(one.name);
  return names;
}

}  // namespace lockstep::oracle
