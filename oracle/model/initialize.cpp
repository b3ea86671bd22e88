#include "oracle/model/initialize.h"

#include "oracle/arithmetic/functions.h"
#include "oracle/arithmetic/philox.h"

namespace lockstep::oracle {
namespace {

constexpr float kInitStd = 0.02f;  // Not a scenario key (docs/decisions.md).

float uniform(std::uint32_t word) { return mul(static_cast<float>(word >> 8), 0x1p-24f); }

void normal_pair(std::uint32_t w0, std::uint32_t w1, float std, float* out) {
  const float u1 = add(uniform(w0), 0x1p-25f);
  const float radius = sqrt(mul(-2.0f, log(u1)));
  float sine, cosine;
  sincos(mul(uniform(w1), 0x1.921fb6p+2f), sine, cosine);
  out[0] = add(mul(mul(radius, cosine), std), 0.0f);
  out[1] = add(mul(mul(radius, sine), std), 0.0f);
}

// The initial value of an element from the uniform number of its own word.
float from_uniform(const ParameterLayout& parameter, float u) {
  switch (parameter.start) {
    case Start::conv:
      return mul(sub(mul(2.0f, u), 1.0f), div(1.0f, sqrt(static_cast<float>(parameter.cols))));
    case Start::dt_bias: {
      const float low = log(0.001f);
      const float dt = exp(add(mul(u, sub(log(0.1f), low)), low));
      return log(sub(exp(dt), 1.0f));
    }
    case Start::a_log:
      return log(add(1.0f, mul(15.0f, u)));
    case Start::one:
      return 1.0f;
    default:
      return 0.0f;
  }
}

}  // namespace

void normal_block(const std::uint32_t words[4], float std, float out[4]) {
  normal_pair(words[0], words[1], std, out);
  normal_pair(words[2], words[3], std, out + 2);
}

std::vector<float> initial_weight(const ParameterLayout& parameter, std::uint32_t index,
                                  std::int64_t layers, std::int64_t seed, Mutant mutant) {
  const bool normal = parameter.has_copy() || parameter.start == Start::router;
  const bool scaled =
      parameter.start == Start::scaled_normal && !mutant("initial-output-weights-are-not-scaled");
  const float std = scaled ? div(kInitStd, sqrt(static_cast<float>(2 * layers))) : kInitStd;
  const std::uint32_t key = index + (mutant("initial-weights-take-another-parameter") ? 1 : 0);

  std::vector<float> weight(parameter.rows * parameter.cols);
  for (std::size_t e = 0; e < weight.size(); e += 4) {
    const std::uint64_t block = e / 4;
    const PhiloxCounter words =
        philox(seed, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                      key, 0x494e4954u});
    float values[4];
    normal_block(words.data(), std, values);
    for (std::size_t k = 0; k < 4 && e + k < weight.size(); ++k) {
      weight[e + k] = normal ? values[k] : from_uniform(parameter, uniform(words[k]));
    }
  }
  return weight;
}

}  // namespace lockstep::oracle
