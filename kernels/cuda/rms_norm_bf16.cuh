// bf16 RMSNorm that reads every element once. Backward: a block owns 32 physical rows, as CS does; a warp per row finds
// dx and leaves its x and dy in shared memory, from where each thread adds its columns in the order of the rows.
#pragma once

#include "kernels/cuda/row_quads.cuh"
#include "kernels/rms_norm.h"

namespace lockstep {

inline constexpr int kNormRows = kWarps;  // Rows in shared memory at a time.

template <int kSteps>
__global__ void __launch_bounds__(kThreads) rms_norm_forward_bf16(RmsNormForward<bf16> op) {
  const std::int64_t i = warp_item();
  if (i >= op.x.rows) return;
  const int d = static_cast<int>(op.x.cols);
  const bool real = at(op.row_document, 0, i) >= 0;
  RowQuads<kSteps> x = {};
  float rstd = 0.0f;
  if (real) {
    x.load(&at(op.x, i, 0), d);
    Accumulators a;
    each_quad<kSteps>(d, [&](int s, int) {
#pragma unroll
      for (int c = 0; c < 4; ++c) a.acc[c] = fma(x.step[s][c], x.step[s][c], a.acc[c]);
    });
    rstd = rsqrt(add(div(add(tree128(a), 0.0f), static_cast<float>(d)), op.eps));
  }
  each_quad<kSteps>(d, [&](int s, int k) {
    const float4 gain = quad_of(op.gain.data, k);
    float y[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) y[c] = real ? mul(mul(x.step[s][c], rstd), part(gain, c)) : 0.0f;
    *reinterpret_cast<Quad*>(&at(op.y, i, k)) = quad(y);
  });
  if (lane_index() == 0) at(op.rstd, 0, i) = rstd;
}

// A row of x and of dy for each warp.
struct NormRows {
  bf16* x;
  bf16* dy;
  float* rstd;
};
__device__ __forceinline__ NormRows norm_rows(std::byte* memory, int d) {
  bf16* const x = reinterpret_cast<bf16*>(memory);
  return {x, x + kNormRows * d, reinterpret_cast<float*>(x + 2 * kNormRows * d)};
}
inline std::size_t norm_memory(std::int64_t d) {
  return static_cast<std::size_t>(2 * kNormRows * d) * sizeof(bf16) + kNormRows * sizeof(float);
}

// The warp's row: dx, and what the columns need of it. Rows of no document leave zeros.
template <int kSteps>
__device__ __forceinline__ void rms_norm_row(const RmsNormBackward<bf16>& op, std::int64_t i, const NormRows& rows) {
  const int d = static_cast<int>(op.x.cols);
  const int w = warp_index();
  const bool real = i < op.x.rows && at(op.row_document, 0, i) >= 0;
  RowQuads<kSteps> x = {};
  RowQuads<kSteps> dy = {};
  const float rstd = real ? at(op.rstd, 0, i) : 0.0f;
  float nc = 0.0f;
  if (real) {
    x.load(&at(op.x, i, 0), d);
    dy.load(&at(op.dy, i, 0), d);
    Accumulators a;
    each_quad<kSteps>(d, [&](int s, int k) {
      const float4 gain = quad_of(op.gain.data, k);
#pragma unroll
      for (int c = 0; c < 4; ++c) a.acc[c] = fma(mul(dy.step[s][c], part(gain, c)), mul(x.step[s][c], rstd), a.acc[c]);
    });
    nc = neg(div(add(tree128(a), 0.0f), static_cast<float>(d)));
  }
  each_quad<kSteps>(d, [&](int s, int k) {
    *reinterpret_cast<Quad*>(rows.x + w * d + k) = x.step[s];
    *reinterpret_cast<Quad*>(rows.dy + w * d + k) = dy.step[s];
    if (i >= op.x.rows) return;
    const float4 gain = quad_of(op.gain.data, k);
    Quad residual = {};
    const bool adds = real && op.dresidual.data != nullptr;
    if (adds) residual = *reinterpret_cast<const Quad*>(&at(op.dresidual, i, k));
    float dx[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float own = mul(rstd, fma(nc, mul(x.step[s][c], rstd), mul(dy.step[s][c], part(gain, c))));
      dx[c] = real ? adds ? add(residual[c], own) : own : 0.0f;
    }
    *reinterpret_cast<Quad*>(&at(op.dx, i, k)) = quad(dx);
  });
  if (lane_index() == 0) rows.rstd[w] = rstd;
}

// Grid: blocks of 32 rows. A thread owns the columns 8t .. 8t + 7 of every 2,048.
template <int kSteps>
__global__ void __launch_bounds__(kThreads, kSteps <= 16 ? 2 : 1) rms_norm_backward_bf16(RmsNormBackward<bf16> op) {
  extern __shared__ __align__(16) std::byte memory[];
  constexpr int kOwn = (kSteps + 15) / 16;
  const int d = static_cast<int>(op.x.cols);
  const NormRows rows = norm_rows(memory, d);
  const std::int64_t first = blockIdx.x * kRowBlock;
  float p[kOwn][kEight] = {};
  for (std::int64_t i = first; i < first + kRowBlock && i < op.x.rows; i += kNormRows) {
    __syncthreads();  // The last rows have been used.
    rms_norm_row<kSteps>(op, i + warp_index(), rows);
    __syncthreads();
    for (int w = 0; w < kNormRows; ++w) {
#pragma unroll
      for (int o = 0; o < kOwn; ++o) {
        const int k = (o * kThreads + static_cast<int>(threadIdx.x)) * kEight;
        if (k >= d) continue;
        float x[kEight];
        float dy[kEight];
        load_eight(x, rows.x + w * d + k, kEight, true);
        load_eight(dy, rows.dy + w * d + k, kEight, true);
        each_of_eight([&](int c) { p[o][c] = fma(dy[c], mul(x[c], rows.rstd[w]), p[o][c]); });
      }
    }
  }
#pragma unroll
  for (int o = 0; o < kOwn; ++o) {
    const int k = (o * kThreads + static_cast<int>(threadIdx.x)) * kEight;
    if (k < d) store_eight(&at(op.partials, blockIdx.x, k), p[o], kEight, true);
  }
}

// Other sizes and alignments take the plain kernels.
inline bool runs_wide(const RmsNormForward<bf16>& op) {
  return op.x.cols % kEight == 0 && op.x.cols <= 4096 && all_move_16_bytes(op.x, op.gain, op.y);
}
inline bool runs_wide(const RmsNormBackward<bf16>& op) {
  return op.x.cols % kEight == 0 && op.x.cols <= 4096 &&
         all_move_16_bytes(op.x, op.gain, op.dy, op.dresidual, op.dx, op.partials);
}
inline void run_wide(CudaQueue queue, const RmsNormForward<bf16>& op) {
  const dim3 grid(blocks_for(op.x.rows, kWarps));
  const auto kernel = op.x.cols <= 512    ? rms_norm_forward_bf16<4>
                      : op.x.cols <= 2048 ? rms_norm_forward_bf16<16>
                                          : rms_norm_forward_bf16<32>;
  launch(queue, grid, dim3(kThreads), kernel, op);
}
inline void run_wide(CudaQueue queue, const RmsNormBackward<bf16>& op) {
  const std::size_t memory = norm_memory(op.x.cols);
  const auto kernel = op.x.cols <= 512    ? rms_norm_backward_bf16<4>
                      : op.x.cols <= 2048 ? rms_norm_backward_bf16<16>
                                          : rms_norm_backward_bf16<32>;
  cuda_launch_check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(memory)));
  launch(queue, dim3(blocks_for(op.x.rows, kRowBlock)), dim3(kThreads), {.shared_bytes = memory}, kernel, op);
  fold(queue, op.partials, op.dgain);
}

}  // namespace lockstep
