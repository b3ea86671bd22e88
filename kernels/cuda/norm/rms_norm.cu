#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/norm/fused_norm.h"
#include "kernels/cuda/norm/rms_norm_bf16.cuh"
#include "kernels/ops/rms_norm.h"

namespace lockstep {
namespace {

// One warp per row.
template <class T>
__global__ void rms_norm_forward(RmsNormForward<T> op) {
  pdl_begin();
  const std::int64_t i = warp_item();
  if (i >= op.x.rows) return;
  const std::int64_t d = op.x.cols;
  const bool real = at(op.row_document, 0, i) >= 0;
  float rstd = 0.0f;
  if (real) {
    const float ss = r128(d, [&](std::int64_t k, float acc) {
      const float x = load(at(op.x, i, k));
      return fma(x, x, acc);
    });
    rstd = rsqrt(add(div(ss, static_cast<float>(d)), op.eps));
  }
  StoredMagnitudes magnitudes;
  for (std::int64_t k = lane_index(); k < d; k += kWarp) {
    const T y = st<T>(real ? mul(mul(load(at(op.x, i, k)), rstd), at(op.gain, 0, k)) : 0.0f);
    at(op.y, i, k) = y;
    if constexpr (std::is_same_v<T, bf16>) magnitudes.take(y.bits);
  }
  if (op.amax.data != nullptr) raise_amax(op.amax.data, magnitudes);
  if (lane_index() == 0) at(op.rstd, 0, i) = rstd;
}

// u and v of one element.
template <class T>
struct Terms {
  float u;
  float v;
  __device__ Terms(const RmsNormBackward<T>& op, std::int64_t i, std::int64_t k, float rstd)
      : u(mul(load(at(op.x, i, k)), rstd)), v(mul(load(at(op.dy, i, k)), at(op.gain, 0, k))) {}
};

template <class T>
__global__ void rms_norm_backward(RmsNormBackward<T> op) {
  pdl_begin();
  const std::int64_t i = warp_item();
  if (i >= op.x.rows) return;
  const std::int64_t d = op.x.cols;
  if (at(op.row_document, 0, i) < 0) {
    for (std::int64_t k = lane_index(); k < d; k += kWarp) at(op.dx, i, k) = st<T>(0.0f);
    return;
  }
  const float rstd = at(op.rstd, 0, i);
  const float sum = r128(d, [&](std::int64_t k, float acc) {
    const Terms<T> t(op, i, k, rstd);
    return fma(t.v, t.u, acc);
  });
  const float nc = neg(div(sum, static_cast<float>(d)));
  StoredMagnitudes magnitudes;
  for (std::int64_t k = lane_index(); k < d; k += kWarp) {
    const Terms<T> t(op, i, k, rstd);
    float dx = mul(rstd, fma(nc, t.u, t.v));
    if (op.dresidual.data != nullptr) dx = add(load(at(op.dresidual, i, k)), dx);
    const T stored = st<T>(dx);
    at(op.dx, i, k) = stored;
    if constexpr (std::is_same_v<T, bf16>) magnitudes.take(stored.bits);
  }
  if (op.amax.data != nullptr) raise_amax(op.amax.data, magnitudes);
}

template <class T>
__global__ void rms_norm_gain_gradient(RmsNormBackward<T> op) {
  pdl_begin();
  const std::int64_t k = own_column();
  const bool inside = k < op.x.cols;
  const float sum = column_sum(op.x.rows, inside, [&](std::int64_t i, float p) {
    if (at(op.row_document, 0, i) < 0) return p;
    return fma(load(at(op.dy, i, k)), mul(load(at(op.x, i, k)), at(op.rstd, 0, i)), p);
  });
  if (inside && warp_index() == 0) store_gradient(op.dgain, op.total, 0, k, sum);
}

}  // namespace

template <class T>
void run(CudaQueue queue, const RmsNormForward<T>& op) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (runs_wide(op)) return run_wide(queue, op);
  }
  launch(queue, dim3(blocks_for(op.x.rows, kWarps)), dim3(kThreads), kPdl, rms_norm_forward<T>, op);
}
template <class T>
void run(CudaQueue queue, const RmsNormBackward<T>& op) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (runs_wide(op)) return run_wide(queue, op);
  }
  launch(queue, dim3(blocks_for(op.x.rows, kWarps)), dim3(kThreads), kPdl, rms_norm_backward<T>,
         op);
  launch(queue, column_grid(op.x.cols), dim3(kThreads), kPdl, rms_norm_gain_gradient<T>, op);
}
bool can_fuse(const ResidualForward<bf16>& residual, const RmsNormForward<bf16>& norm) {
  return runs_wide(residual, norm);
}
void run_fused(CudaQueue queue, const ResidualForward<bf16>& residual,
               const RmsNormForward<bf16>& norm) {
  run_wide(queue, residual, norm);
}
template void run(CudaQueue, const RmsNormForward<float>&);
template void run(CudaQueue, const RmsNormForward<bf16>&);
template void run(CudaQueue, const RmsNormBackward<float>&);
template void run(CudaQueue, const RmsNormBackward<bf16>&);

}  // namespace lockstep
