#include "harness/judge/expected_steps.h"

namespace lockstep {
namespace {

oracle::StepResult without_tensors(oracle::StepResult result) {
  for (oracle::MicrobatchResult& microbatch : result.microbatches) {
    microbatch.activations.clear();
    microbatch.gradients.clear();
  }
  return result;
}

}  // namespace

const ExpectedSteps::Judged& ExpectedSteps::step(std::int64_t step) {
  if (step == at_) return step_;
  close_step();
  at_ = step;
  step_.documents = data_.training(step);
  step_.want = judge_->step(step, step_.documents);
  return step_;
}

const ExpectedSteps::Judged& ExpectedSteps::evaluation(std::int64_t step) {
  if (!evaluation_) {
    evaluation_.emplace();
    evaluation_->documents = data_.evaluation(step);
    evaluation_->want = judge_->evaluate(step, evaluation_->documents);
  }
  return *evaluation_;
}

void ExpectedSteps::close_step() {
  if (at_ < 0) return;
  remembered_.steps.push_back(without_tensors(std::move(step_.want)));
  remembered_.evaluations.emplace_back();
  if (evaluation_) remembered_.evaluations.back() = without_tensors(std::move(evaluation_->want));
  evaluation_.reset();
}

ReferenceResults ExpectedSteps::remember() && {
  close_step();
  remembered_.parameters = judge_->parameters();
  remembered_.expert_biases = judge_->expert_bias();
  remembered_.digest = judge_->weight_digest();
  remembered_.scaling = judge_->scaling_digest();
  return std::move(remembered_);
}

}  // namespace lockstep
