// Computes the results that a run of the engine must give: by the oracle, or where bits are not
// modelled by an eager run of the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "oracle/oracle.h"
#include "scenarios/scenario.h"

namespace lockstep {

class Judge {
 public:
  virtual ~Judge() = default;
  // Steps come in order; the evaluation of a step comes before the next step.
  virtual oracle::StepResult step(std::int64_t step, const StepData& data) = 0;
  virtual oracle::StepResult evaluate(std::int64_t step, const StepData& data) = 0;
  // The state after the last step, in the oracle's form.
  virtual const std::vector<oracle::Parameter>& parameters() const = 0;
  virtual const std::vector<std::vector<float>>& expert_bias() const = 0;
  virtual std::string weight_digest() const = 0;
  virtual std::string scaling_digest() const = 0;  // "" without recipe delayed of fp8.
};

// `mutation` names an error planted in the oracle.
std::unique_ptr<Judge> make_oracle_judge(const Scenario& scenario, const std::string& mutation);

}  // namespace lockstep
