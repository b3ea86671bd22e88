#include "kernels/ops/initialize.h"

#include "kernels/core/fault.h"

namespace lockstep {
namespace {

// The elements 4k..4k+3 of one block: a radius and an angle make two of them.
struct Normals {
  float value[4];
};
Normals normals(const Philox& block, float std) {
  Normals made{};
  for (int pair = 0; pair < 4; pair += 2) {
    const float u1 = add(uniform(block.word[pair]), 0x1p-25f);
    const float radius = sqrt(mul(-2.0f, log(u1)));
    float sn, cs;
    sincos(mul(uniform(block.word[pair + 1]), 0x1.921fb6p+2f), sn, cs);
    made.value[pair] = add(mul(mul(radius, cs), std), 0.0f);
    made.value[pair + 1] = add(mul(mul(radius, sn), std), 0.0f);
  }
  return made;
}

float initial_value(const Initialize& op, const Philox& block, const Normals& normal,
                    std::int64_t lane) {
  const float u = uniform(block.word[lane]);
  switch (op.kind) {
    case Init::zero:
      return 0.0f;
    case Init::one:
      return 1.0f;
    case Init::normal:
      return normal.value[lane];
    case Init::conv_weight:
      return mul(sub(mul(2.0f, u), 1.0f), div(1.0f, sqrt(static_cast<float>(op.width))));
    case Init::dt_bias: {
      const float low = log(0.001f);
      const float dt = exp(add(mul(u, sub(log(0.1f), low)), low));
      return log(sub(exp(dt), 1.0f));
    }
    case Init::a_log:
      return log(add(1.0f, mul(15.0f, u)));
  }
  return quiet_nan();
}

}  // namespace

void run(HostQueue, const Initialize& op) {
  const std::uint32_t parameter = faulty("initialize-ignores-parameter", op.parameter, 0u);
  const std::int64_t blocks =
      faulty("initialize-cuts-its-block-number", ~std::int64_t{0}, (std::int64_t{1} << 22) - 1);
  Philox block{};
  Normals normal{};
  std::int64_t served = -1;
  for (std::int64_t i = 0; i < op.w.rows; ++i) {
    for (std::int64_t c = 0; c < op.w.cols; ++c) {
      const std::int64_t e = op.first + i * op.w.cols + c;
      if (e / 4 != served) {
        served = e / 4;
        block = philox(op.seed_low, op.seed_high, static_cast<std::uint32_t>(served & blocks),
                       static_cast<std::uint32_t>((served & blocks) >> 32), parameter, 0x494e4954u);
        if (op.kind == Init::normal) normal = normals(block, op.std);
      }
      op.w.row(i)[c] = initial_value(op, block, normal, e & 3);
    }
  }
}

}  // namespace lockstep
