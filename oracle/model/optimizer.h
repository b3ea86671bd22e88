// Gradient norm, clipping, AdamW and learning rates, arithmetic.md 1 and 2.13.
#pragma once

#include <vector>

#include "oracle/arithmetic/mutations.h"
#include "oracle/model/parameter.h"
#include "scenarios/scenario.h"

namespace lockstep::oracle {

float gradient_norm(const std::vector<Parameter>& parameters, Mutant mutant);
float clip_factor(double max_norm, float norm, Mutant mutant);
float learning_rate(const Scenario::Training::Optimizer& optimizer, std::int64_t t, Mutant mutant);

// AdamW, updated at t = 1, 2, ... The powers of the betas are kept from step to step.
class AdamW {
 public:
  explicit AdamW(const Scenario::Training::Optimizer& optimizer) : optimizer_(optimizer) {}
  // Multiplies the powers as `steps` steps would.
  void advance(std::int64_t steps);
  void update(Parameter& parameter, float clip, float rate, Mutant mutant) const;
  float first_correction() const { return static_cast<float>(1.0 / (1.0 - power1_)); }
  float second_correction() const { return static_cast<float>(1.0 / (1.0 - power2_)); }

 private:
  Scenario::Training::Optimizer optimizer_;
  double power1_ = 1.0, power2_ = 1.0;
};

}  // namespace lockstep::oracle
