// The judge: the same training step on the CPU, written from arithmetic.md alone, plain and eager,
// document by document. Shares no code with the engine or its kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "oracle/model/parameter.h"
#include "oracle/model/statistics.h"
#include "scenarios/documents/documents.h"
#include "scenarios/scenario.h"

namespace lockstep::oracle {

// [rows, cols], row-major. Names are those of docs/tensors.md, so that a difference can be placed.
struct Tensor {
  std::string name;
  int layer = -1;  // Symbol index, -1 outside the layers.
  std::int64_t rows = 0, cols = 0;
  std::vector<float> values;
};

struct MicrobatchResult {
  float loss = 0;
  std::vector<Tensor>
      activations;  // Stored tensors of the forward pass, in program order, if kept.
  std::vector<std::vector<float>> gradients;     // g_m per parameter index, if kept.
  std::vector<ExpertStatistics<float>> experts;  // Per layer of experts, in their order.
};

struct StepResult {
  float loss = 0;
  float norm = 0, clip = 1, learning_rate = 0;
  std::vector<MicrobatchResult> microbatches;
};

struct Options {
  Numerics numerics = Numerics::fp32;
  bool keep_activations = true;
  bool keep_gradients = true;
  std::string mutation;  // A planted error, "" for none; names: Oracle::mutations().
};

class Oracle {
 public:
  Oracle(const Scenario& scenario, const Options& options);
  ~Oracle();
  // Runs optimizer step `step` (0-based; steps come in order) on its documents.
  StepResult step(std::int64_t step, const StepData& data);
  // Forward only, no dropout; normalised by the evaluation's own targets. Changes nothing.
  StepResult evaluate(std::int64_t step, const StepData& data) const;
  // After the last step: weights, gradients of that step, moments.
  const std::vector<Parameter>& parameters() const;
  // 32 hex digits (hi then lo) over all weights: arithmetic.md, Digest, kind 0.
  std::string weight_digest() const;
  // Replaces weights and moments, as when continuing from a checkpoint after `steps_done` steps.
  // `expert_bias` as expert_bias() gives it; {} = zeros.
  void restore(std::vector<Parameter> parameters, std::int64_t steps_done,
               std::vector<std::vector<float>> expert_bias = {});
  // State that is no parameter: [E] per symbol of the pattern, empty where there is none.
  const std::vector<std::vector<float>>& expert_bias() const;
  // Names of the planted errors, one for every op at least.
  static std::vector<std::string> mutations();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The same text with `double` for every rounding: finite differences and external fixtures. Loss of
// one microbatch with N = its unmasked targets, and the gradient per parameter; weights as given
// (or the initial ones if empty), and so the expert bias (or zeros). The gradient is that of the
// loss plus the losses of the experts.
struct DoubleResult {
  double loss = 0;
  std::vector<ExpertStatistics<double>> experts;
  std::vector<std::vector<double>> gradients;
};
DoubleResult run_in_double(const Scenario& scenario, const Microbatch& microbatch,
                           const std::vector<std::vector<double>>& weights, std::int64_t step = 0,
                           const std::vector<std::vector<double>>& expert_bias = {});

}  // namespace lockstep::oracle
