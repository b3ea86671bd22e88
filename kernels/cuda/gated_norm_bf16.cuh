// bf16 gated RMSNorm that reads every element once, for groups of at most 1,024 channels. Backward: a block owns 32
// physical rows of one group, as CS does; a warp per row, then a thread per column in the order of the rows.
#pragma once

#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/row_quads.cuh"
#include "kernels/gated_norm.h"

namespace lockstep {

template <int kSteps, bool kFull>
__global__ void __launch_bounds__(kThreads) gated_norm_forward_bf16(GatedNormForward<bf16> op) {
  start_after_last_kernel();
  const std::int64_t item = warp_item();
  if (item >= op.y.rows * op.groups) return;
  const std::int64_t i = item / op.groups;
  const std::int64_t group = item % op.groups;
  const int width = static_cast<int>(op.y.cols / op.groups);
  const std::int64_t first = group * width;
  const bool real = at(op.row_document, 0, i) >= 0;
  float u[kSteps][4] = {};
  float rstd = 0.0f;
  if (real) {
    RowQuads<kSteps, kFull> y;
    RowQuads<kSteps, kFull> z;
    y.load(&at(op.y, i, first), width);
    z.load(&at(op.z, i, first), width);
    Accumulators a;
    each_quad<kSteps, kFull>(width, [&](int s, int) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        u[s][c] = mul(y.step[s][c], gated(z.step[s][c]));
        a.acc[c] = fma(u[s][c], u[s][c], a.acc[c]);
      }
    });
    rstd = rsqrt(add(div(add(tree128(a), 0.0f), static_cast<float>(width)), op.eps));
  }
  each_quad<kSteps, kFull>(width, [&](int s, int k) {
    const float4 gain = quad_of(op.gain.data, static_cast<int>(first) + k);
    float o[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) o[c] = real ? mul(mul(u[s][c], rstd), part(gain, c)) : 0.0f;
    quad(o).store(&at(op.o, i, first + k));
  });
  if (lane_index() == 0) at(op.rstd, i, group) = rstd;
}

// Eight rows of a group: mul(u, rstd), and dout.
template <int kSteps>
struct GatedRows {
  float u[kWarps][128 * kSteps];
  bf16 dout[kWarps][128 * kSteps];
};

template <int kSteps, bool kFull>
__device__ __forceinline__ void gated_norm_row(const GatedNormBackward<bf16>& op, std::int64_t i, std::int64_t group,
                                               GatedRows<kSteps>& rows) {
  const int width = static_cast<int>(op.y.cols / op.groups);
  const std::int64_t first = group * width;
  const bool real = i < op.y.rows && at(op.row_document, 0, i) >= 0;
  RowQuads<kSteps, kFull> y = {};
  RowQuads<kSteps, kFull> z = {};
  RowQuads<kSteps, kFull> dout = {};
  float gate[kSteps][4] = {};  // sigmoid(z)
  const float rstd = real ? at(op.rstd, i, group) : 0.0f;
  const auto u_of = [&](int s, int c) { return mul(mul(y.step[s][c], mul(z.step[s][c], gate[s][c])), rstd); };
  float nc = 0.0f;
  if (real) {
    y.load(&at(op.y, i, first), width);
    z.load(&at(op.z, i, first), width);
    dout.load(&at(op.dout, i, first), width);
    Accumulators a;
    each_quad<kSteps, kFull>(width, [&](int s, int k) {
      const float4 gain = quad_of(op.gain.data, static_cast<int>(first) + k);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        gate[s][c] = gate_of(z.step[s][c]);
        a.acc[c] = fma(mul(dout.step[s][c], part(gain, c)), u_of(s, c), a.acc[c]);
      }
    });
    nc = neg(div(add(tree128(a), 0.0f), static_cast<float>(width)));
  }
  each_quad<kSteps, kFull>(width, [&](int s, int k) {
    float u[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) u[c] = u_of(s, c);
    *reinterpret_cast<float4*>(&rows.u[warp_index()][k]) = make_float4(u[0], u[1], u[2], u[3]);
    *reinterpret_cast<Quad*>(&rows.dout[warp_index()][k]) = dout.step[s];
    if (i >= op.y.rows) return;
    const float4 gain = quad_of(op.gain.data, static_cast<int>(first) + k);
    float dy[4];
    float dz[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float x = z.step[s][c];
      const float g = gate[s][c];
      const float du = mul(rstd, fma(nc, u[c], mul(dout.step[s][c], part(gain, c))));
      dy[c] = real ? mul(du, mul(x, g)) : 0.0f;
      dz[c] = real ? mul(mul(du, y.step[s][c]), mul(g, fma(x, sub(1.0f, g), 1.0f))) : 0.0f;
    }
    quad(dy).store(&at(op.dy, i, first + k));
    quad(dz).store(&at(op.dz, i, first + k));
  });
}

// Grid: (32 rows, group).
template <int kSteps, bool kFull>
__global__ void __launch_bounds__(kThreads) gated_norm_backward_bf16(GatedNormBackward<bf16> op) {
  start_after_last_kernel();
  __shared__ __align__(16) GatedRows<kSteps> rows;
  constexpr int kOwn = (128 * kSteps + kThreads - 1) / kThreads;
  const int width = static_cast<int>(op.y.cols / op.groups);
  const std::int64_t group = blockIdx.y;
  const std::int64_t first = blockIdx.x * kRowBlock;
  float p[kOwn] = {};
  for (std::int64_t i = first; i < first + kRowBlock && i < op.y.rows; i += kWarps) {
    __syncthreads();  // The last rows have been used.
    gated_norm_row<kSteps, kFull>(op, i + warp_index(), group, rows);
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
#pragma unroll
      for (int o = 0; o < kOwn; ++o) {
        const int k = o * kThreads + static_cast<int>(threadIdx.x);
        if (k < width) p[o] = fma(load(rows.dout[w][k]), rows.u[w][k], p[o]);
      }
    }
  }
#pragma unroll
  for (int o = 0; o < kOwn; ++o) {
    const int k = o * kThreads + static_cast<int>(threadIdx.x);
    if (k < width) at(op.partials, blockIdx.x, group * width + k) = p[o];
  }
}

// Other sizes and alignments take the plain kernels.
template <class Op>
bool has_wide_groups(const Op& op) {
  return op.y.cols / op.groups % kEight == 0 && op.y.cols / op.groups <= 1024 && all_move_16_bytes(op.y, op.z, op.gain);
}
inline bool runs_wide(const GatedNormForward<bf16>& op) { return has_wide_groups(op) && moves_16_bytes(op.o); }
inline bool runs_wide(const GatedNormBackward<bf16>& op) {
  return has_wide_groups(op) && all_move_16_bytes(op.dout, op.dy, op.dz);
}
inline void run_wide(CudaQueue queue, const GatedNormForward<bf16>& op) {
  with_steps<1, 4, 8>(op.y.cols / op.groups, [&]<int kSteps, bool kFull>() {
    launch(queue, dim3(blocks_for(op.y.rows * op.groups, kWarps)), dim3(kThreads), kEarly,
           gated_norm_forward_bf16<kSteps, kFull>, op);
  });
}
inline void run_wide(CudaQueue queue, const GatedNormBackward<bf16>& op) {
  with_steps<1, 4, 8>(op.y.cols / op.groups, [&]<int kSteps, bool kFull>() {
    const dim3 grid(blocks_for(op.y.rows, kRowBlock), static_cast<unsigned>(op.groups));
    launch(queue, grid, dim3(kThreads), kEarly, gated_norm_backward_bf16<kSteps, kFull>, op);
  });
  fold(queue, op.partials, op.dgain);
}

}  // namespace lockstep
