#include "engine/train/step_state.h"

#include <algorithm>

#include "engine/train/learning_rate.h"
#include "kernels/core/contract.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

std::int64_t rows_that_count(const StepCounts& counts) {
  return faulty("normaliser-counts-a-row-more", counts.targets, counts.targets + 1);
}

// A step without targets divides by 1.
float inverse_targets(const StepCounts& counts) {
  const std::int64_t targets = faulty("normalised-by-the-ranks-again", rows_that_count(counts),
                                      counts.targets * counts.ranks);
  const std::int64_t least = faulty("normaliser-of-no-target", 1, 0);
  return div(1.0f, static_cast<float>(std::max(targets, least)));
}

float inverse_microbatches(const Scenario& scenario, const StepCounts& counts) {
  const std::int64_t baked = scenario.training.microbatches;
  return div(1.0f,
             static_cast<float>(faulty("microbatch-share-baked", counts.microbatches, baked)));
}

// `t` counts optimizer steps from 1.
float first_correction(double beta1, std::int64_t t) {
  return bias_correction(
      beta1, faulty("bias-correction-of-a-short-table", t, std::min<std::int64_t>(t, 8)));
}
float second_correction(double beta2, std::int64_t t) {
  return bias_correction(beta2, faulty("bias-correction-baked", t, 1));
}

std::uint32_t dropout_step(const StepCounts& counts) {
  const std::int64_t step =
      faulty("resume-repeats-dropout-keys", counts.steps_done, counts.steps_since_load);
  return static_cast<std::uint32_t>(faulty("dropout-key-baked", step, 0));
}
float rate_of(const Scenario::Training::Optimizer& optimizer, const StepCounts& counts) {
  const std::int64_t t =
      faulty("resume-restarts-the-schedule", counts.steps_done + 1, counts.steps_since_load + 1);
  return learning_rate(optimizer, faulty("learning-rate-baked", t, 1));
}

}  // namespace

StepState step_state(const Scenario& scenario, const StepCounts& counts) {
  const Scenario::Training::Optimizer& optimizer = scenario.training.optimizer;
  const auto seed = static_cast<std::uint64_t>(scenario.training.seed);
  const std::int64_t t =
      faulty("resume-restarts-bias-correction", counts.steps_done + 1, counts.steps_since_load + 1);
  return {.seed_low = static_cast<std::uint32_t>(seed),
          .seed_high = static_cast<std::uint32_t>(seed >> 32),
          .step = dropout_step(counts),
          .inverse_targets = inverse_targets(counts),
          .learning_rate = rate_of(optimizer, counts),
          .bias_correction1 = first_correction(optimizer.beta1, t),
          .bias_correction2 = second_correction(optimizer.beta2, t),
          .inverse_microbatches = inverse_microbatches(scenario, counts)};
}

}  // namespace lockstep
