// bf16 convolution of width 4 that reads every element about once: a thread walks down two neighbouring channels with
// the last rows in registers. Backward: a block owns 32 physical rows, as CS does, and looks three rows ahead.
#pragma once

#include "kernels/conv.h"
#include "kernels/cuda/fragment.cuh"
#include "kernels/cuda/reduce.cuh"

namespace lockstep {

inline constexpr int kTaps = 4;
inline constexpr int kAhead = kTaps - 1;
inline constexpr int kConvBatch = 7;  // Rows that are read at once.
inline constexpr int kConvRows = 5 * kConvBatch;
static_assert(kConvRows == kRowBlock + kAhead);

// Two neighbouring channels.
struct TwoChannels {
  float weight[2][kTaps];
  float bias[2];

  template <class Op>
  __device__ __forceinline__ TwoChannels(const Op& op, std::int64_t c) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      bias[e] = at(op.bias, 0, c + e);
#pragma unroll
      for (int u = 0; u < kTaps; ++u) weight[e][u] = at(op.weight, c + e, u);
    }
  }
};
// A row's document and the first tap that lies in it; rows outside the microbatch belong to no document.
struct ConvRow {
  std::int32_t document;
  std::int32_t first_tap;
};
template <class Op>
__device__ __forceinline__ ConvRow conv_row(const Op& op, std::int64_t row) {
  if (row >= op.x.rows) return {-1, 0};
  const std::int32_t position = at(op.row_position, 0, row);
  return {at(op.row_document, 0, row), position < kAhead ? kAhead - position : 0};
}
__device__ __forceinline__ std::uint32_t pair_in(const In<bf16>& from, std::int64_t row, std::int64_t c) {
  if (row < 0 || row >= from.rows) return 0;
  return *reinterpret_cast<const std::uint32_t*>(&at(from, row, c));
}
__device__ __forceinline__ float half_of(std::uint32_t pair, int e) {
  return from_bits(e == 0 ? pair << 16 : pair & 0xffff0000u);
}
// `x`: the last four rows of a channel, the newest last.
__device__ __forceinline__ float before_activation(const TwoChannels& channels, int e, const float (&x)[kTaps],
                                                   int first_tap) {
  float a = channels.bias[e];
#pragma unroll
  for (int u = 0; u < kTaps; ++u) a = u >= first_tap ? fma(channels.weight[e][u], x[u], a) : a;
  return add(a, 0.0f);
}
__device__ __forceinline__ void push(float (&last)[kTaps], float x) {
#pragma unroll
  for (int u = 0; u + 1 < kTaps; ++u) last[u] = last[u + 1];
  last[kTaps - 1] = x;
}

inline constexpr int kForwardRows = 16;
// Grid: (16 rows, 512 channels).
static __global__ void __launch_bounds__(kThreads) conv_forward_bf16(ConvForward<bf16> op) {
  __shared__ ConvRow rows[kForwardRows];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kForwardRows;
  const std::int64_t c = 2 * (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x);
  if (threadIdx.x < kForwardRows) rows[threadIdx.x] = conv_row(op, first + threadIdx.x);
  __syncthreads();
  if (c >= op.x.cols) return;
  const TwoChannels channels(op, c);
  std::uint32_t read[kForwardRows + kAhead];
#pragma unroll
  for (int k = 0; k < kForwardRows + kAhead; ++k) read[k] = pair_in(op.x, first + k - kAhead, c);
  float x[2][kTaps] = {};
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
#pragma unroll
    for (int e = 0; e < 2; ++e) push(x[e], half_of(read[k], e));
  }
#pragma unroll
  for (int k = 0; k < kForwardRows; ++k) {
    float y[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      push(x[e], half_of(read[k + kAhead], e));
      y[e] = rows[k].document >= 0 ? silu(before_activation(channels, e, x[e], rows[k].first_tap)) : 0.0f;
    }
    if (first + k < op.y.rows) {
      *reinterpret_cast<std::uint32_t*>(&at(op.y, first + k, c)) = stored_pair(y[0], y[1]);
    }
  }
}

// Partial sums of a block: those of the four taps, then that of the bias. They lie in the scratch for dpre.
__device__ __forceinline__ float& conv_partial(const ConvBackward<bf16>& op, std::int64_t block, int which,
                                               std::int64_t c) {
  return at(op.dpre, block * (kTaps + 1) + which, c);
}

// What a thread carries from row to row for one of its channels.
struct ConvChannel {
  float x[kTaps] = {};
  float dpre[kTaps] = {};
  float dweight[kTaps] = {};
  float dbias = 0.0f;
};

// Grid: (512 channels, 32 rows).
static __global__ void __launch_bounds__(kThreads) conv_backward_bf16(ConvBackward<bf16> op) {
  __shared__ ConvRow rows[kConvRows];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * kRowBlock;
  const std::int64_t c = 2 * (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x);
  if (threadIdx.x < kConvRows) rows[threadIdx.x] = conv_row(op, first + threadIdx.x);
  __syncthreads();
  if (c >= op.x.cols) return;
  const TwoChannels channels(op, c);
  ConvChannel own[2];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const std::uint32_t x = pair_in(op.x, first + k - kAhead, c);
#pragma unroll
    for (int e = 0; e < 2; ++e) push(own[e].x, half_of(x, e));
  }
  for (int batch = 0; batch < kConvRows; batch += kConvBatch) {
    std::uint32_t x[kConvBatch];
    std::uint32_t dy[kConvBatch];
#pragma unroll
    for (int k = 0; k < kConvBatch; ++k) {
      x[k] = pair_in(op.x, first + batch + k, c);
      dy[k] = pair_in(op.dy, first + batch + k, c);
    }
#pragma unroll
    for (int k = 0; k < kConvBatch; ++k) {
      const int t = batch + k;
      const ConvRow row = rows[t];
      float dx[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        ConvChannel& channel = own[e];
        push(channel.x, half_of(x[k], e));
        const float pre = before_activation(channels, e, channel.x, row.first_tap);
        const float dpre = row.document >= 0 ? mul(half_of(dy[k], e), dsilu(pre)) : 0.0f;
        push(channel.dpre, dpre);
        if (t < kRowBlock && row.document >= 0) {
          channel.dbias = add(channel.dbias, dpre);
#pragma unroll
          for (int u = 0; u < kTaps; ++u) {
            if (u >= row.first_tap) channel.dweight[u] = add(channel.dweight[u], mul(dpre, channel.x[u]));
          }
        }
        // Row t - 3 has seen all rows that it gave to.
        float a = 0.0f;
        if (t >= kAhead) {
          const std::int32_t document = rows[t - kAhead].document;
#pragma unroll
          for (int q = 0; q < kTaps; ++q) {
            const bool gives = document >= 0 && rows[t - kAhead + q].document == document;
            a = gives ? fma(channels.weight[e][kAhead - q], channel.dpre[q], a) : a;
          }
        }
        dx[e] = add(a, 0.0f);
      }
      const std::int64_t to = first + t - kAhead;
      if (t >= kAhead && to < op.dx.rows) {
        *reinterpret_cast<std::uint32_t*>(&at(op.dx, to, c)) = stored_pair(dx[0], dx[1]);
      }
    }
  }
#pragma unroll
  for (int e = 0; e < 2; ++e) {
#pragma unroll
    for (int u = 0; u < kTaps; ++u) conv_partial(op, blockIdx.y, u, c + e) = own[e].dweight[u];
    conv_partial(op, blockIdx.y, kTaps, c + e) = own[e].dbias;
  }
}

// Grid: (32 channels, tap or bias).
static __global__ void __launch_bounds__(kWarp) conv_fold_partials(ConvBackward<bf16> op) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  if (c >= op.x.cols) return;
  const int which = static_cast<int>(blockIdx.y);
  const std::int64_t blocks = (op.x.rows + kRowBlock - 1) / kRowBlock;
  float s = 0.0f;
#pragma unroll 32
  for (std::int64_t block = 0; block < blocks; ++block) s = add(s, conv_partial(op, block, which, c));
  (which == kTaps ? at(op.dbias, 0, c) : at(op.dweight, c, which)) = add(s, 0.0f);
}

// Other widths and odd places take the plain kernels, and so do packs too short for the partial sums.
inline bool moves_pairs(const In<bf16>& operand) {
  return reinterpret_cast<std::uintptr_t>(operand.data) % 4 == 0 && operand.pitch % 2 == 0;
}
inline bool runs_in_pairs(const ConvForward<bf16>& op) {
  return op.weight.cols == kTaps && op.x.cols % 2 == 0 && moves_pairs(op.x) && moves_pairs(op.y);
}
inline bool runs_in_pairs(const ConvBackward<bf16>& op) {
  return op.weight.cols == kTaps && op.x.cols % 2 == 0 && moves_pairs(op.x) && moves_pairs(op.dy) &&
         moves_pairs(op.dx) && (op.x.rows + kRowBlock - 1) / kRowBlock * (kTaps + 1) <= op.dpre.rows;
}
inline void run_in_pairs(CudaQueue queue, const ConvForward<bf16>& op) {
  // Rows on x: 1,048,576 of them are more blocks than the y axis holds.
  const dim3 grid(blocks_for(op.x.rows, kForwardRows), blocks_for(op.x.cols, 2 * kThreads));
  launch(queue, grid, dim3(kThreads), conv_forward_bf16, op);
}
inline void run_in_pairs(CudaQueue queue, const ConvBackward<bf16>& op) {
  const dim3 grid(blocks_for(op.x.cols, 2 * kThreads), blocks_for(op.x.rows, kRowBlock));
  launch(queue, grid, dim3(kThreads), conv_backward_bf16, op);
  launch(queue, dim3(blocks_for(op.x.cols, kWarp), kTaps + 1), dim3(kWarp), conv_fold_partials, op);
}

}  // namespace lockstep
