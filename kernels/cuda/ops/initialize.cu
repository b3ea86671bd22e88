#include "kernels/cuda/common/element.cuh"
#include "kernels/ops/initialize.h"

namespace lockstep {
namespace {

inline constexpr std::uint32_t kInitialisation =
    0x494e4954u;  // "INIT", the fourth word of the counter.

// Element `place` of a block of four; the pairs are (w0, w1) and (w2, w3), cosine first.
__device__ float normal(const Philox& block, int place, float std) {
  const std::uint32_t w0 = place < 2 ? block.word[0] : block.word[2];
  const std::uint32_t w1 = place < 2 ? block.word[1] : block.word[3];
  const float u1 = add(mul(static_cast<float>(w0 >> 8), 0x1p-24f), 0x1p-25f);
  const float radius = sqrt(mul(-2.0f, log(u1)));
  float sn, cs;
  sincos(mul(uniform(w1), 0x1.921fb6p+2f), sn, cs);
  return add(mul(mul(radius, place % 2 == 0 ? cs : sn), std), 0.0f);
}
__device__ float dt_bias(float u) {
  const float low = log(0.001f);
  const float dt = exp(add(mul(u, sub(log(0.1f), low)), low));
  return log(sub(exp(dt), 1.0f));
}

__device__ float initial(const Initialize& op, std::int64_t element) {
  if (op.kind == Init::zero) return 0.0f;
  if (op.kind == Init::one) return 1.0f;
  const Philox block =
      philox(op.seed_low, op.seed_high, static_cast<std::uint32_t>(element / 4),
             static_cast<std::uint32_t>(element / 4 >> 32), op.parameter, kInitialisation);
  const int place = static_cast<int>(element % 4);
  if (op.kind == Init::normal) return normal(block, place, op.std);
  const float u = uniform(block.word[place]);
  if (op.kind == Init::dt_bias) return dt_bias(u);
  if (op.kind == Init::a_log) return log(add(1.0f, mul(15.0f, u)));
  return mul(sub(mul(2.0f, u), 1.0f), div(1.0f, sqrt(static_cast<float>(op.width))));
}

__global__ void initialize(Initialize op) {
  pdl_begin();
  const Element e = own_element(op.w.rows, op.w.cols);
  if (e.inside) at(op.w, e.row, e.col) = initial(op, op.first + e.row * op.w.cols + e.col);
}

}  // namespace

void run(CudaQueue queue, const Initialize& op) {
  launch_elements(queue, op.w.rows, op.w.cols, initialize, op);
}

}  // namespace lockstep
