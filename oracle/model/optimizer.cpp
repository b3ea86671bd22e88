#include "oracle/model/optimizer.h"

#include "oracle/arithmetic/functions.h"
#include "oracle/arithmetic/reductions.h"

namespace lockstep::oracle {

namespace {

float chain_of_squares(
    const std::vector<Parameter>& parameters) {  // For the planted error of this name alone.
  float sum = 0;
  for (const Parameter& parameter : parameters) {
    for (const float g : parameter.gradient) sum = fma(g, g, sum);
  }
  return sum;
}

}  // namespace

float gradient_norm(const std::vector<Parameter>& parameters, Mutant mutant) {
  std::vector<float> rows;  // One entry per row of a matrix, per element of a vector.
  for (const Parameter& parameter : parameters) {
    if (mutant("norm-of-gradients-misses-a-parameter") && &parameter == &parameters.back()) break;
    const std::int64_t width = parameter.is_vector ? 1 : parameter.cols;
    const auto size = static_cast<std::int64_t>(parameter.gradient.size());
    for (std::int64_t first = 0; first < size; first += width) {
      const float* g = parameter.gradient.data() + first;
      rows.push_back(
          r128<float>(width, [g](std::int64_t e, float acc) { return fma(g[e], g[e], acc); }));
    }
  }
  if (mutant("norm-of-gradients-is-one-chain")) return sqrt(chain_of_squares(parameters));
  const float* q = rows.data();
  return sqrt(r1024<float>(static_cast<std::int64_t>(rows.size()),
                           [q](std::int64_t e, float acc) { return add(acc, q[e]); }));
}

float clip_factor(double max_norm, float norm, Mutant mutant) {
  const auto limit = static_cast<float>(max_norm);
  if (!(limit > 0 && norm > limit) || mutant("clip-is-forgotten")) return 1.0f;
  return div(mutant("clip-scales-to-twice-the-limit") ? mul(2.0f, limit) : limit, norm);
}

float learning_rate(const Scenario::Training::Optimizer& optimizer, std::int64_t t, Mutant mutant) {
  const auto peak = static_cast<float>(optimizer.lr), low = static_cast<float>(optimizer.min_lr);
  const std::int64_t warm_up = optimizer.lr_warmup, total = optimizer.decay_steps;
  if (t <= warm_up && !mutant("rate-forgets-the-warm-up")) {
    return mul(peak, div(static_cast<float>(t), static_cast<float>(warm_up)));
  }
  if (optimizer.schedule == LrSchedule::constant || mutant("rate-never-decays")) return peak;
  const float x =
      t >= total ? 1.0f : div(static_cast<float>(t - warm_up), static_cast<float>(total - warm_up));
  if (optimizer.schedule == LrSchedule::linear) return fma(sub(low, peak), x, peak);
  float sine, cosine;
  sincos(mul(x, 0x1.921fb6p+1f), sine, cosine);
  return fma(mul(sub(peak, low), 0.5f), add(1.0f, cosine), low);
}

void AdamW::advance(std::int64_t steps) {
  for (std::int64_t s = 0; s < steps; ++s) {
    power1_ = power1_ * optimizer_.beta1;
    power2_ = power2_ * optimizer_.beta2;
  }
}

void AdamW::update(Parameter& parameter, float clip, float rate, Mutant mutant) const {
  const bool plain = mutant("adam-forgets-bias-correction");
  const float ib1 = plain ? 1.0f : first_correction(), ib2 = plain ? 1.0f : second_correction();
  const auto b1 = mutant("adam-keeps-no-momentum") ? 0.0f : static_cast<float>(optimizer_.beta1);
  const auto o1 = static_cast<float>(1.0 - optimizer_.beta1);
  const auto b2 = static_cast<float>(optimizer_.beta2),
             o2 = static_cast<float>(1.0 - optimizer_.beta2);
  const auto eps = static_cast<float>(optimizer_.eps);
  const bool decays =
      (!parameter.is_vector || mutant("adam-decays-vectors-too")) && !mutant("adam-forgets-decay");
  const float wd = decays ? static_cast<float>(optimizer_.weight_decay) : 0.0f;
  const bool under = mutant("adam-adds-eps-under-the-root");
  for (std::size_t e = 0; e < parameter.weight.size(); ++e) {
    const float g = mul(parameter.gradient[e], clip);
    const float m = fma(b1, parameter.m[e], mul(o1, g));
    const float v = fma(b2, parameter.v[e], mul(o2, mul(g, g)));
    const float root = under ? sqrt(add(mul(v, ib2), eps)) : add(sqrt(mul(v, ib2)), eps);
    const float u = fma(wd, parameter.weight[e], div(mul(m, ib1), root));
    parameter.weight[e] = fma(neg(rate), u, parameter.weight[e]);
    parameter.m[e] = m;
    parameter.v[e] = v;
  }
}

}  // namespace lockstep::oracle
