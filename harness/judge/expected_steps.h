// The expected results of a run. Each step is computed once, for the rank that asks first, and kept
// until all ranks are done with it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/judge/judge.h"

namespace lockstep {

// The results that later runs of the same case are compared with.
struct ReferenceResults {
  std::vector<oracle::StepResult> steps;  // Without tensors, as are the evaluations.
  std::vector<std::optional<oracle::StepResult>> evaluations;
  std::vector<oracle::Parameter> parameters;  // After the last step.
  std::vector<std::vector<float>> expert_biases;
  std::string digest, scaling;  // `scaling` is that of fp8's scaling state, "" without one.
};

class ExpectedSteps {
 public:
  struct Judged {
    StepData documents;
    oracle::StepResult want;
  };

  ExpectedSteps(const DataSource& data, std::unique_ptr<Judge> judge)
      : data_(data), judge_(std::move(judge)) {}

  // Steps come in order. Asking for a new one releases the one before.
  const Judged& step(std::int64_t step);
  const Judged& evaluation(std::int64_t step);  // After that step.
  // The state after the step that was asked for last.
  const Judge& judge() const { return *judge_; }
  // The results after the last step.
  ReferenceResults remember() &&;

 private:
  void close_step();

  const DataSource& data_;
  std::unique_ptr<Judge> judge_;
  std::int64_t at_ = -1;
  Judged step_;
  std::optional<Judged> evaluation_;
  ReferenceResults remembered_;
};

}  // namespace lockstep
