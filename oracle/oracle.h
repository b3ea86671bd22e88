// The reference: the same training step on the CPU, written from arithmetic.md alone, plain and
// eager, document by document. It shares no code with the engine or its kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "oracle/model/parameter.h"
#include "oracle/model/statistics.h"
#include "oracle/model/written.h"
#include "scenarios/documents/documents.h"
#include "scenarios/scenario.h"

namespace lockstep::oracle {

struct MicrobatchResult {
  float loss = 0;
  std::vector<Tensor>
      activations;  // Stored tensors of the forward pass, in program order, if kept.
  std::vector<std::vector<float>> gradients;     // g_m per parameter index, if kept.
  std::vector<ExpertStatistics<float>> experts;  // Per layer of experts, in their order.
  // fp8 numerics (arithmetic.md, section 5): the amax of each operand in its number's order, and
  // the first operand with an Inf or a NaN, which is a violation; "" if there is none.
  std::vector<std::uint32_t> amaxes = {};
  std::string fp8_failure = {};
  // The values that each op wrote, forward and backward, if kept: by op and operand
  // (docs/tensors.md), such as "conv_backward.dx".
  std::vector<Tensor> written = {};
  // Tensors of the backward pass, if activations are kept: amax and exponent of each dY in fp8.
  std::vector<Tensor> left_by_backward = {};
};

struct StepResult {
  float loss = 0;
  float norm = 0, clip = 1, learning_rate = 0;
  std::vector<MicrobatchResult> microbatches;
  std::vector<Tensor> histories = {};  // One of each operand, with the recipe delayed of fp8.
};

struct Options {
  Numerics numerics = Numerics::fp32;
  bool keep_activations = true;
  bool keep_gradients = true;
  bool keep_written = false;
  std::string mutation;  // A planted error of Oracle::mutations(), "" for none.
};

class Oracle {
 public:
  Oracle(const Scenario& scenario, const Options& options);
  ~Oracle();
  // Runs optimizer step `step` (0-based; steps come in order) on its documents.
  StepResult step(std::int64_t step, const StepData& data);
  // Runs the forward pass only, without dropout, normalised by the evaluation's own targets.
  // Changes nothing.
  StepResult evaluate(std::int64_t step, const StepData& data) const;
  // Weights, gradients and moments after the last step.
  const std::vector<Parameter>& parameters() const;
  // The digest of all weights as 32 hex digits, hi then lo (arithmetic.md 1, kind 0).
  std::string weight_digest() const;
  // The same of histories and exponents with the recipe delayed of fp8 (kind 5); "" without it.
  std::string scaling_digest() const;
  // Replaces weights and moments, as when continuing from a checkpoint after `steps_done` steps.
  // `expert_bias` has the form that expert_bias() returns; {} means zeros.
  void restore(std::vector<Parameter> parameters, std::int64_t steps_done,
               std::vector<std::vector<float>> expert_bias = {});
  // State that is no parameter: [E] for each symbol of the pattern, empty where there is none.
  const std::vector<std::vector<float>>& expert_bias() const;
  // The names of the planted errors, at least one for every op.
  static std::vector<std::string> mutations();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Runs the same code with `double` for every rounding, for finite differences, external fixtures
// and engines that round otherwise.
struct DoubleTensor {
  std::string name;
  int layer = -1;  // Symbol index, -1 outside the layers.
  std::int64_t rows = 0, cols = 0;
  std::vector<double> values;
};
struct DoubleResult {
  double loss = 0;
  std::vector<ExpertStatistics<double>> experts;
  std::vector<std::vector<double>> gradients;  // The loss's plus the experts' losses'.
  std::vector<DoubleTensor> activations;       // Like MicrobatchResult's.
};
struct DoublePass {
  std::vector<std::vector<double>> weights = {};      // By parameter index; {}: the initial ones.
  std::vector<std::vector<double>> expert_bias = {};  // {}: zeros.
  std::int64_t step = 0;
  double loss_scale = 0;          // 0: 1 / max(1, targets of the microbatch).
  std::int64_t microbatches = 1;  // The step's, on all ranks.
  // Weights that this numerics reads as copies are rounded to it first.
  Numerics numerics = Numerics::fp32;
  // The seed of nudges, 0 for none: every weight, and every value that the contract stores, moves
  // by one unit in the last place of `numerics`, up or down as this seed draws it.
  std::uint64_t nudge = 0;
  std::uint64_t number = 0;  // The microbatch's: its stored values are nudged by themselves.
};
DoubleResult run_in_double(const Scenario& scenario, const Microbatch& microbatch,
                           const DoublePass& pass);
// The same with the microbatch alone in its step. Empty weights mean the initial ones.
DoubleResult run_in_double(const Scenario& scenario, const Microbatch& microbatch,
                           const std::vector<std::vector<double>>& weights, std::int64_t step = 0,
                           const std::vector<std::vector<double>>& expert_bias = {});
// The parameters' names, in their index order.
std::vector<std::string> parameter_names(const Scenario& scenario);

}  // namespace lockstep::oracle
