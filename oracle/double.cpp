// The reference model with every rounding in double, and nudged.
#include <algorithm>
#include <type_traits>

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

template <class Real>
std::vector<double> widened(std::vector<Real> values) {
  if constexpr (std::is_same_v<Real, double>) return values;
  return {values.begin(), values.end()};
}

template <class Real>
std::vector<std::vector<Real>> narrowed(Weights weights) {
  if constexpr (std::is_same_v<Real, double>) return weights;
  std::vector<std::vector<Real>> narrow;
  for (const std::vector<double>& one : weights) narrow.emplace_back(one.begin(), one.end());
  return narrow;
}

template <class Real>
std::vector<DoubleTensor> tensors(Saved<Real>& saved) {
  std::vector<DoubleTensor> list;
  const int layers = static_cast<int>(saved.last()) - 1;
  for (int place = 0; place <= layers + 1; ++place) {
    const bool inside = place > 0 && place <= layers;
    const std::string prefix = inside ? "layers." + std::to_string(place - 1) + "." : "";
    for (NamedMatrix<Real>& entry : saved.places()[place]) {
      Matrix<Real>& matrix = entry.matrix;
      list.push_back({prefix + entry.name, inside ? place - 1 : -1, matrix.rows, matrix.cols,
                      widened(std::move(matrix.values))});
    }
  }
  return list;
}

std::int64_t targets_of(const PackedBatch& pack) {
  return std::ranges::count_if(pack.targets, [](std::int32_t target) { return target >= 0; });
}

template <class Real>
ExpertStatistics<double> widened(ExpertStatistics<Real> one) {
  return {one.layer, one.aux_loss, one.z_loss, std::move(one.chosen), std::move(one.dropped)};
}

// The weights are those that the numerics reads.
template <class Precision>
DoubleResult walk(const Scenario& scenario, const Microbatch& microbatch, const DoublePass& pass,
                  const Layout& layout, Weights read) {
  using Real = typename Precision::Real;
  const Scenario::Model& model = scenario.model;
  const auto weights = narrowed<Real>(std::move(read));
  const auto rope = make_rope_table<Real>(scenario.data.pack_length, model.attention.head_dim,
                                          rope_base(scenario, pass));
  const PackedBatch pack = make_pack(scenario, microbatch, Mutant());
  const double scale = pass.loss_scale != 0
                           ? pass.loss_scale
                           : 1.0 / static_cast<double>(std::max<std::int64_t>(targets_of(pack), 1));
  const auto bias =
      pass.expert_bias.empty() ? no_expert_bias<Real>(model) : narrowed<Real>(pass.expert_bias);
  Saved<Real> saved(model.pattern.size());
  std::vector<std::vector<Real>> gradients(layout.parameters.size());
  std::vector<ExpertStatistics<Real>> statistics;
  ReferenceModel<Precision> model_walk(
      {model, layout, rope, pack, weights, bias,
       static_cast<Real>(1.0 / static_cast<double>(pass.microbatches)), gradients, statistics,
       saved, Mutant()},
      {model.dropout.value(), scenario.training.seed, pass.step});
  DoubleResult result;
  result.loss = model_walk.forward(static_cast<Real>(scale), true);
  model_walk.backward();
  for (std::vector<Real>& one : gradients) result.gradients.push_back(widened(std::move(one)));
  for (ExpertStatistics<Real>& one : statistics) result.experts.push_back(widened(std::move(one)));
  result.activations = tensors(saved);
  return result;
}

}  // namespace

DoubleResult run_in_double(const Scenario& scenario, const Microbatch& microbatch,
                           const DoublePass& pass) {
  const Layout layout = make_layout(scenario.model);
  const bool is_bf16 = pass.numerics == Numerics::bf16;
  Nudged::chance = {.state = pass.nudge * kSpread,
                    .bits = is_bf16 ? Nudged::kBitsOfBf16 : Nudged::kBitsOfFp32};
  Weights weights = read_weights(
      layout, pass.weights.empty() ? widened_start(scenario, layout) : pass.weights, pass);
  Nudged::chance.state = (pass.nudge + kSpread * (pass.number + 1)) * kSpread;
  const auto walk_as = [&]<class Precision>(Precision) {
    return walk<Precision>(scenario, microbatch, pass, layout, std::move(weights));
  };
  if (pass.nudge == 0) return walk_as(Fp64());
  return is_bf16 ? walk_as(Nudged()) : walk_as(NudgedFp32());
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
