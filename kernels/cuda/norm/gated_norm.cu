#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/norm/gated_norm_bf16.cuh"
#include "kernels/ops/gated_norm.h"

namespace lockstep {
namespace {

// u = y * silu(z), never stored.
template <class Op>
__device__ __forceinline__ float gated(const Op& op, std::int64_t i, std::int64_t k) {
  return mul(load(at(op.y, i, k)), silu(load(at(op.z, i, k))));
}

// One warp per row and group. The indices and the divisor of R128 restart in each group.
template <class T>
__global__ void gated_norm_forward(GatedNormForward<T> op) {
  pdl_begin();
  const std::int64_t item = warp_item();
  if (item >= op.y.rows * op.groups) return;
  const std::int64_t i = item / op.groups;
  const std::int64_t group = item % op.groups;
  const std::int64_t width = op.y.cols / op.groups;
  const std::int64_t first = group * width;
  const bool real = at(op.row_document, 0, i) >= 0;
  float rstd = 0.0f;
  if (real) {
    const float ss = r128(width, [&](std::int64_t k, float acc) {
      const float u = gated(op, i, first + k);
      return fma(u, u, acc);
    });
    rstd = rsqrt(add(div(ss, static_cast<float>(width)), op.eps));
  }
  StoredMagnitudes magnitudes;
  for (std::int64_t k = first + lane_index(); k < first + width; k += kWarp) {
    const T o = st<T>(real ? mul(mul(gated(op, i, k), rstd), at(op.gain, 0, k)) : 0.0f);
    at(op.o, i, k) = o;
    if constexpr (std::is_same_v<T, bf16>) magnitudes.take(o.bits);
  }
  if (op.amax.data != nullptr) raise_amax(op.amax.data, magnitudes);
  if (lane_index() == 0) at(op.rstd, i, group) = rstd;
}

template <class T>
__global__ void gated_norm_backward(GatedNormBackward<T> op) {
  pdl_begin();
  const std::int64_t item = warp_item();
  if (item >= op.y.rows * op.groups) return;
  const std::int64_t i = item / op.groups;
  const std::int64_t group = item % op.groups;
  const std::int64_t width = op.y.cols / op.groups;
  const std::int64_t first = group * width;
  if (at(op.row_document, 0, i) < 0) {
    for (std::int64_t k = first + lane_index(); k < first + width; k += kWarp) {
      at(op.dy, i, k) = st<T>(0.0f);
      at(op.dz, i, k) = st<T>(0.0f);
    }
    return;
  }
  const float rstd = at(op.rstd, i, group);
  const float sum = r128(width, [&](std::int64_t k, float acc) {
    const float v = mul(load(at(op.dout, i, first + k)), at(op.gain, 0, first + k));
    return fma(v, mul(gated(op, i, first + k), rstd), acc);
  });
  const float nc = neg(div(sum, static_cast<float>(width)));
  StoredMagnitudes magnitudes;
  for (std::int64_t k = first + lane_index(); k < first + width; k += kWarp) {
    const float y = load(at(op.y, i, k));
    const float z = load(at(op.z, i, k));
    const float v = mul(load(at(op.dout, i, k)), at(op.gain, 0, k));
    const float du = mul(rstd, fma(nc, mul(mul(y, silu(z)), rstd), v));
    at(op.dy, i, k) = st<T>(mul(du, silu(z)));
    const T dz = st<T>(mul(mul(du, y), dsilu(z)));
    at(op.dz, i, k) = dz;
    if constexpr (std::is_same_v<T, bf16>) magnitudes.take(dz.bits);
  }
  if (op.amax.data != nullptr) raise_amax(op.amax.data, magnitudes);
}

template <class T>
__global__ void gated_norm_gain_gradient(GatedNormBackward<T> op) {
  pdl_begin();
  const std::int64_t k = own_column();
  const bool inside = k < op.y.cols;
  const std::int64_t width = op.y.cols / op.groups;
  const float sum = column_sum(op.y.rows, inside, [&](std::int64_t i, float p) {
    if (at(op.row_document, 0, i) < 0) return p;
    return fma(load(at(op.dout, i, k)), mul(gated(op, i, k), at(op.rstd, i, k / width)), p);
  });
  if (inside && warp_index() == 0) store_gradient(op.dgain, op.total, 0, k, sum);
}

}  // namespace

template <class T>
void run(CudaQueue queue, const GatedNormForward<T>& op) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (runs_wide(op)) return run_wide(queue, op);
  }
  launch(queue, dim3(blocks_for(op.y.rows * op.groups, kWarps)), dim3(kThreads), kPdl,
         gated_norm_forward<T>, op);
}
template <class T>
void run(CudaQueue queue, const GatedNormBackward<T>& op) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (runs_wide(op)) return run_wide(queue, op);
  }
  launch(queue, dim3(blocks_for(op.y.rows * op.groups, kWarps)), dim3(kThreads), kPdl,
         gated_norm_backward<T>, op);
  launch(queue, column_grid(op.y.cols), dim3(kThreads), kPdl, gated_norm_gain_gradient<T>, op);
}
template void run(CudaQueue, const GatedNormForward<float>&);
template void run(CudaQueue, const GatedNormForward<bf16>&);
template void run(CudaQueue, const GatedNormBackward<float>&);
template void run(CudaQueue, const GatedNormBackward<bf16>&);

}  // namespace lockstep
