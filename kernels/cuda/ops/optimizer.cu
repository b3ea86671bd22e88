#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/vec8.cuh"
#include "kernels/ops/accumulate.h"
#include "kernels/ops/optimizer.h"

namespace lockstep {
namespace {

__global__ void accumulate_gradient(AccumulateGradient op, bool wide) {
  pdl_begin();
  const Vec8s e = own_vec8(op.acc.rows, op.acc.cols);
  if (!e.inside) return;
  float acc[kVec8];
  float g[kVec8];
  load_vec8(acc, &at(op.acc, e.row, e.col), e.count, wide);
  for (std::int64_t row = e.row; row < op.g.rows; row += op.acc.rows) {
    load_vec8(g, &at(op.g, row, e.col), e.count, wide);
    each_vec8([&](int k) { acc[k] = add(acc[k], g[k]); });
  }
  store_vec8(&at(op.acc, e.row, e.col), acc, e.count, wide);
}

// Neighbouring threads write neighbouring pieces of 16 bytes; pieces of 32 would leave as two half
// sectors each.
inline constexpr int kZeros = 4;  // Pieces per thread.
__global__ void zero_gradient(float* acc, std::int64_t pieces) {
  pdl_begin();
  const std::int64_t first = std::int64_t{blockIdx.x} * kZeros * kThreads + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kZeros; ++k) {
    const std::int64_t piece = first + k * kThreads;
    if (piece < pieces) store_16(acc + 4 * piece, 0, 0, 0, 0);
  }
}
__global__ void zero_gradient_alone(ZeroGradient op) {
  pdl_begin();
  const Element e = own_element(op.acc.rows, op.acc.cols);
  if (e.inside) at(op.acc, e.row, e.col) = 0.0f;
}

// One warp per row.
__global__ void gradient_row_sums(GradientRowSums op) {
  pdl_begin();
  const std::int64_t i = warp_item();
  if (i >= op.g.rows) return;
  const float sum = r128(op.g.cols, [&](std::int64_t k, float acc) {
    const float g = at(op.g, i, k);
    return fma(g, g, acc);
  });
  if (lane_index() == 0) at(op.sums, 0, i) = sum;
}

__global__ void order_row_sums(OrderRowSums op) {
  pdl_begin();
  const Element e = own_element(1, op.order.cols);
  if (e.inside) at(op.to, 0, e.col) = at(op.from, 0, at(op.order, 0, e.col));
}

// One block.
__global__ void __launch_bounds__(kThreads) gradient_norm(GradientNorm op) {
  pdl_begin();
  const float ss =
      r1024(op.sums.cols, [&](std::int64_t e, float acc) { return add(acc, at(op.sums, 0, e)); });
  if (threadIdx.x != 0) return;
  const float norm = sqrt(ss);
  at(op.norm, 0, 0) = norm;
  at(op.norm, 0, 1) = op.max_norm > 0.0f && norm > op.max_norm ? div(op.max_norm, norm) : 1.0f;
}

__global__ void adamw(AdamW op) {
  pdl_begin();
  const Element e = own_element(op.w.rows, op.w.cols);
  if (!e.inside) return;
  const StepState& state = op.state.data[0];
  const float g = mul(at(op.g, e.row, e.col), at(op.norm, 0, 1));
  const float m = fma(op.beta1, at(op.m, e.row, e.col), mul(op.one_minus_beta1, g));
  const float v = fma(op.beta2, at(op.v, e.row, e.col), mul(op.one_minus_beta2, mul(g, g)));
  const float w = at(op.w, e.row, e.col);
  const float step =
      div(mul(m, state.bias_correction1), add(sqrt(mul(v, state.bias_correction2)), op.eps));
  at(op.m, e.row, e.col) = m;
  at(op.v, e.row, e.col) = v;
  const float updated = fma(neg(state.learning_rate), fma(op.weight_decay, w, step), w);
  at(op.w, e.row, e.col) = updated;
  if (op.copy.data != nullptr) at(op.copy, e.row, e.col) = st<bf16>(updated);
}

__global__ void round_weights(RoundWeights op, bool wide) {
  pdl_begin();
  const Vec8s e = own_vec8(op.copy.rows, op.copy.cols);
  if (!e.inside) return;
  float w[kVec8];
  load_vec8(w, &at(op.w, e.row, e.col), e.count, wide);
  store_vec8(&at(op.copy, e.row, e.col), w, e.count, wide);
}

}  // namespace

void run(CudaQueue queue, const AccumulateGradient& op) {
  launch_vec8(queue, op.acc.rows, op.acc.cols, accumulate_gradient, op,
              all_vectorizable(op.g, op.acc));
}
void run(CudaQueue queue, const ZeroGradient& op) {
  const std::int64_t size = op.acc.rows * op.acc.cols;
  const bool contiguous = op.acc.rows == 1 || op.acc.pitch == op.acc.cols;
  if (is_vectorizable(op.acc) && contiguous && size % 4 == 0) {
    launch(queue, dim3(blocks_for(size / 4, kZeros * kThreads)), dim3(kThreads), kPdl,
           zero_gradient, op.acc.data, size / 4);
  } else {
    launch_elements(queue, op.acc.rows, op.acc.cols, zero_gradient_alone, op);
  }
}
void run(CudaQueue queue, const GradientRowSums& op) {
  launch(queue, dim3(blocks_for(op.g.rows, kWarps)), dim3(kThreads), kPdl, gradient_row_sums, op);
}
void run(CudaQueue queue, const OrderRowSums& op) {
  launch_elements(queue, 1, op.order.cols, order_row_sums, op);
}
void run(CudaQueue queue, const GradientNorm& op) {
  launch(queue, dim3(1), dim3(kThreads), kPdl, gradient_norm, op);
}
void run(CudaQueue queue, const AdamW& op) {
  launch_elements(queue, op.w.rows, op.w.cols, adamw, op);
}
void run(CudaQueue queue, const RoundWeights& op) {
  launch_vec8(queue, op.copy.rows, op.copy.cols, round_weights, op,
              all_vectorizable(op.w, op.copy));
}

}  // namespace lockstep
