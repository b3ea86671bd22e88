#include "engine/train/learning_rate.h"

#include "kernels/core/contract.h"
#include "kernels/core/fault.h"

namespace lockstep {

float learning_rate(const Scenario::Training::Optimizer& optimizer, std::int64_t t) {
  const float peak = static_cast<float>(optimizer.lr);
  const float low = static_cast<float>(optimizer.min_lr);
  const std::int64_t warmup = optimizer.lr_warmup;
  const std::int64_t total = optimizer.decay_steps;
  const std::int64_t last_of_warmup = faulty("warm-up-ends-a-step-early", warmup, warmup - 1);
  if (warmup > 0 && t <= last_of_warmup) {
    return mul(peak, div(static_cast<float>(t), static_cast<float>(warmup)));
  }
  if (optimizer.schedule == LrSchedule::constant) return peak;
  const float x =
      t >= total ? 1.0f : div(static_cast<float>(t - warmup), static_cast<float>(total - warmup));
  if (optimizer.schedule == LrSchedule::linear) return fma(sub(low, peak), x, peak);
  return fma(mul(sub(peak, low), 0.5f), add(1.0f, cos(mul(x, 0x1.921fb6p+1f))), low);
}

float bias_correction(double beta, std::int64_t t) {
  double power = 1.0;
  for (std::int64_t i = 0; i < t; ++i) power = power * beta;
  return static_cast<float>(1.0 / (1.0 - power));
}

}  // namespace lockstep
