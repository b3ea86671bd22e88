#include "kernels/core/fault.h"
#include "kernels/cuda/common/fragment.cuh"
#include "kernels/diagnostics/tensor_core.h"

namespace lockstep {
namespace {

// One warp per tile.
__global__ void tensor_core_dots(TensorCoreDots op, std::uint32_t last_product) {
  pdl_begin();
  const std::int64_t tile = warp_item();
  if (tile >= op.a.rows / kDotRows) return;
  const auto pair_of = [&](const In<bf16>& x, std::int64_t row, int k) {
    const std::uint32_t both = pair(at(x, row, k), at(x, row, k + 1));
    return k + 2 == kDotDepth ? both & last_product : both;
  };
  std::uint32_t a[4], b[2];
  take_a(
      a, [&](int m, int k) { return pair_of(op.a, tile * kDotRows + m, k); }, 0, 0);
  take_b(
      b, [&](int n, int k) { return pair_of(op.b, tile * kDotColumns + n, k); }, 0, 0);
  float c[4];
  const auto place = [&](int e, auto& x) -> auto& {
    return at(x, tile * kDotRows + lane_group() + 8 * (e / 2), 2 * lane_place() + e % 2);
  };
#pragma unroll
  for (int e = 0; e < 4; ++e) c[e] = place(e, op.c);
  fda16(c, a, b);
#pragma unroll
  for (int e = 0; e < 4; ++e) place(e, op.d) = c[e];
}

}  // namespace

void run(CudaQueue queue, const TensorCoreDots& op) {
  const std::uint32_t last_product =
      faulty("tensor-core-drops-a-product", 0xffffffffu, 0x0000ffffu);
  launch(queue, dim3(blocks_for(op.a.rows / kDotRows, kWarps)), dim3(kThreads), kPdl,
         tensor_core_dots, op, last_product);
}

}  // namespace lockstep
