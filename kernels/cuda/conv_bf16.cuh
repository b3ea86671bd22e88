// bf16 convolution of width 4 that reads every element about once: a thread walks down four neighbouring channels with
// the last rows in registers. Backward: a block owns 32 physical rows, as CS does, and looks three rows ahead. Where
// all rows of a block lie inside one document, nothing is asked of a row.
#pragma once

#include "kernels/conv.h"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/row_quads.cuh"

namespace lockstep {

inline constexpr int kTaps = 4;
inline constexpr int kAhead = kTaps - 1;
inline constexpr int kLanes = 4;  // Channels of a thread.
inline constexpr int kConvThreads = 128;
inline constexpr int kConvRows = kRowBlock + kAhead;

struct ConvChannels {
  float weight[kLanes][kTaps];
  float bias[kLanes];

  template <class Op>
  __device__ __forceinline__ ConvChannels(const Op& op, std::int64_t c) {
    const float4 biases = *reinterpret_cast<const float4*>(&at(op.bias, 0, c));
#pragma unroll
    for (int e = 0; e < kLanes; ++e) {
      const float4 taps = *reinterpret_cast<const float4*>(&at(op.weight, c + e, 0));
      bias[e] = part(biases, e);
#pragma unroll
      for (int u = 0; u < kTaps; ++u) weight[e][u] = part(taps, u);
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
// Rows first .. first + kRows - 1, by the whole block. Whether they all have four taps in the same document.
template <int kRows, class Op>
__device__ __forceinline__ bool find_conv_rows(ConvRow (&rows)[kRows], const Op& op, std::int64_t first) {
  const int k = static_cast<int>(threadIdx.x);
  ConvRow row = {-1, 0};
  if (k < kRows) row = rows[k] = conv_row(op, first + k);
  __syncthreads();
  return __syncthreads_and(k >= kRows || (row.document >= 0 && row.document == rows[0].document && row.first_tap == 0));
}

// Four channels of a row; outside the microbatch +0.
template <bool kPlain>
__device__ __forceinline__ Quad conv_quad(const In<bf16>& from, std::int64_t row, std::int64_t c) {
  if (!kPlain && (row < 0 || row >= from.rows)) return {};
  return *reinterpret_cast<const Quad*>(&at(from, row, c));
}
// Row t's sum before the last add; `x` holds row i in place i % 4. Here and below t % 4 is known where loops unroll.
template <bool kPlain>
__device__ __forceinline__ float tap_chain(const ConvChannels& channels, int e, const float (&x)[kTaps], int t,
                                           int first_tap) {
  float a = channels.bias[e];
#pragma unroll
  for (int u = 0; u < kTaps; ++u) {
    const float next = fma(channels.weight[e][u], x[(t + 1 + u) % kTaps], a);
    a = kPlain || u >= first_tap ? next : a;
  }
  return a;
}
inline constexpr int kForwardRows = 32;
inline constexpr int kForwardBatch = 8;  // Rows that are read before they are needed.

template <bool kPlain>
__device__ __forceinline__ void conv_forward_rows(const ConvForward<bf16>& op, std::int64_t first, std::int64_t c,
                                                  const ConvRow* rows) {
  const ConvChannels channels(op, c);
  float x[kLanes][kTaps];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const Quad before = conv_quad<kPlain>(op.x, first + k - kAhead, c);
#pragma unroll
    for (int e = 0; e < kLanes; ++e) x[e][k + 1] = before[e];
  }
  Quad read[kForwardBatch];
#pragma unroll
  for (int k = 0; k < kForwardBatch; ++k) read[k] = conv_quad<kPlain>(op.x, first + k, c);
#pragma unroll 1
  for (int t = 0; t < kForwardRows; t += kForwardBatch) {
#pragma unroll
    for (int k = 0; k < kForwardBatch; ++k) {
      const ConvRow row = kPlain ? ConvRow{} : rows[t + k];
      float y[kLanes];
#pragma unroll
      for (int e = 0; e < kLanes; ++e) {
        x[e][k % kTaps] = read[k][e];
        const float a = add(tap_chain<kPlain>(channels, e, x[e], k, row.first_tap), 0.0f);
        y[e] = row.document >= 0 ? gated(a) : 0.0f;
      }
      if (kPlain || first + t + k < op.y.rows) quad(y).store(&at(op.y, first + t + k, c));
      if (t + k + kForwardBatch < kForwardRows) read[k] = conv_quad<kPlain>(op.x, first + t + k + kForwardBatch, c);
    }
  }
}

__device__ __forceinline__ std::int64_t own_channels(unsigned block) {
  return kLanes * (static_cast<std::int64_t>(block) * kConvThreads + threadIdx.x);
}
// Grid: (32 rows, 512 channels).
static __global__ void __launch_bounds__(kConvThreads, 6) conv_forward_bf16(ConvForward<bf16> op) {
  start_after_last_kernel();
  __shared__ ConvRow rows[kForwardRows];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kForwardRows;
  const std::int64_t c = own_channels(blockIdx.y);
  const bool plain = find_conv_rows(rows, op, first);
  if (c >= op.x.cols) return;
  if (plain) {
    conv_forward_rows<true>(op, first, c, rows);
  } else {
    conv_forward_rows<false>(op, first, c, rows);
  }
}

// Partial sums of a row block: those of the four taps, then that of the bias. They lie in the scratch for dpre.
__device__ __forceinline__ float& conv_partial(const ConvBackward<bf16>& op, std::int64_t block, int which,
                                               std::int64_t c) {
  return at(op.dpre, block * (kTaps + 1) + which, c);
}

// What a thread carries from row to row for one of its channels; row i in place i % 4.
struct ConvChannel {
  float x[kTaps];
  float dpre[kTaps];
  float dweight[kTaps];
  float dbias;
};

// Row `t` of the block: its dpre, its part of the sums if they are its block's, and dx of row t - 3, which has then
// seen all rows that it gave to.
template <bool kPlain, bool kSums>
__device__ __forceinline__ Quad conv_backward_row(const ConvChannels& channels, ConvChannel (&own)[kLanes],
                                                  const ConvRow* rows, int t, const Quad& x, const Quad& dy) {
  const ConvRow row = kPlain ? ConvRow{} : rows[t];
  float dx[kLanes];
#pragma unroll
  for (int e = 0; e < kLanes; ++e) {
    ConvChannel& channel = own[e];
    channel.x[t % kTaps] = x[e];
    // dsilu does not tell -0 from +0, so the chain's last add is left out.
    const float slope = gated_slope(tap_chain<kPlain>(channels, e, channel.x, t, row.first_tap));
    const float dpre = kPlain || row.document >= 0 ? mul(dy[e], slope) : 0.0f;
    channel.dpre[t % kTaps] = dpre;
    if constexpr (kSums) {
      channel.dbias = add(channel.dbias, dpre);
#pragma unroll
      for (int u = 0; u < kTaps; ++u) {
        const float term = mul(dpre, channel.x[(t + 1 + u) % kTaps]);
        if (kPlain || (row.document >= 0 && u >= row.first_tap)) channel.dweight[u] = add(channel.dweight[u], term);
      }
    }
    float a = 0.0f;
#pragma unroll
    for (int q = 0; q < kTaps; ++q) {
      const float next = fma(channels.weight[e][kAhead - q], channel.dpre[(t + 1 + q) % kTaps], a);
      if constexpr (kPlain) {
        a = next;
      } else if (t >= kAhead) {
        const std::int32_t document = rows[t - kAhead].document;
        a = document >= 0 && rows[t - kAhead + q].document == document ? next : a;
      }
    }
    dx[e] = add(a, 0.0f);
  }
  return quad(dx);
}

template <bool kPlain>
__device__ __forceinline__ void conv_backward_rows(const ConvBackward<bf16>& op, std::int64_t first, std::int64_t c,
                                                   const ConvRow* rows) {
  const ConvChannels channels(op, c);
  ConvChannel own[kLanes] = {};
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const Quad x = conv_quad<kPlain>(op.x, first + k - kAhead, c);
#pragma unroll
    for (int e = 0; e < kLanes; ++e) own[e].x[k + 1] = x[e];
  }
  // Four rows are read before they are needed.
  Quad x[kTaps];
  Quad dy[kTaps];
#pragma unroll
  for (int k = 0; k < kTaps; ++k) {
    x[k] = conv_quad<kPlain>(op.x, first + k, c);
    dy[k] = conv_quad<kPlain>(op.dy, first + k, c);
  }
  const auto store = [&](int t, const Quad& dx) {
    if (kPlain || first + t < op.dx.rows) dx.store(&at(op.dx, first + t, c));
  };
#pragma unroll 1
  for (int t = 0; t < kRowBlock; t += kTaps) {
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      const Quad dx = conv_backward_row<kPlain, true>(channels, own, rows, t + k, x[k], dy[k]);
      if (t > 0 || k == kAhead) store(t + k - kAhead, dx);
      if (t + k + kTaps < kConvRows) {
        x[k] = conv_quad<kPlain>(op.x, first + t + k + kTaps, c);
        dy[k] = conv_quad<kPlain>(op.dy, first + t + k + kTaps, c);
      }
    }
  }
#pragma unroll
  for (int u = 0; u <= kTaps; ++u) {
    const auto sum = [&](int e) { return u < kTaps ? own[e].dweight[u] : own[e].dbias; };
    *reinterpret_cast<float4*>(&conv_partial(op, first / kRowBlock, u, c)) =
        make_float4(sum(0), sum(1), sum(2), sum(3));
  }
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const int t = kRowBlock + k;
    store(t - kAhead, conv_backward_row<kPlain, false>(channels, own, rows, t, x[k], dy[k]));
  }
}

// Grid: (512 channels, 32 rows).
static __global__ void __launch_bounds__(kConvThreads, 4) conv_backward_bf16(ConvBackward<bf16> op) {
  start_after_last_kernel();
  __shared__ ConvRow rows[kConvRows];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * kRowBlock;
  const std::int64_t c = own_channels(blockIdx.x);
  const bool plain = find_conv_rows(rows, op, first);
  if (c >= op.x.cols) return;
  if (plain) {
    conv_backward_rows<true>(op, first, c, rows);
  } else {
    conv_backward_rows<false>(op, first, c, rows);
  }
}

// Grid: (32 channels, tap or bias).
static __global__ void __launch_bounds__(kThreads) conv_fold_partials(ConvBackward<bf16> op) {
  start_after_last_kernel();
  const std::int64_t c = own_column();
  const int which = static_cast<int>(blockIdx.y);
  const float s = fold_terms((op.x.rows + kRowBlock - 1) / kRowBlock, [&](std::int64_t block) {
    return c < op.x.cols ? conv_partial(op, block, which, c) : 0.0f;
  });
  if (c < op.x.cols && warp_index() == 0) (which == kTaps ? at(op.dbias, 0, c) : at(op.dweight, c, which)) = s;
}

// Other widths and odd places take the plain kernels, and so do packs too short for the partial sums.
inline bool moves_quads(const In<bf16>& operand) {
  return reinterpret_cast<std::uintptr_t>(operand.data) % sizeof(Quad) == 0 && operand.pitch % kLanes == 0;
}
inline bool runs_in_quads(const ConvForward<bf16>& op) {
  return op.weight.cols == kTaps && op.x.cols % kLanes == 0 && moves_quads(op.x) && moves_quads(op.y) &&
         all_move_16_bytes(op.weight, op.bias);
}
inline bool runs_in_quads(const ConvBackward<bf16>& op) {
  return op.weight.cols == kTaps && op.x.cols % kLanes == 0 && moves_quads(op.x) && moves_quads(op.dy) &&
         moves_quads(op.dx) && all_move_16_bytes(op.weight, op.bias, op.dpre) &&
         (op.x.rows + kRowBlock - 1) / kRowBlock * (kTaps + 1) <= op.dpre.rows;
}
inline void run_in_quads(CudaQueue queue, const ConvForward<bf16>& op) {
  // Rows on x: 1,048,576 of them are more blocks than the y axis holds.
  const dim3 grid(blocks_for(op.x.rows, kForwardRows), blocks_for(op.x.cols, kLanes * kConvThreads));
  launch(queue, grid, dim3(kConvThreads), kEarly, conv_forward_bf16, op);
}
inline void run_in_quads(CudaQueue queue, const ConvBackward<bf16>& op) {
  const dim3 grid(blocks_for(op.x.cols, kLanes * kConvThreads), blocks_for(op.x.rows, kRowBlock));
  launch(queue, grid, dim3(kConvThreads), kEarly, conv_backward_bf16, op);
  launch(queue, column_grid(op.x.cols, kTaps + 1), dim3(kThreads), kEarly, conv_fold_partials, op);
}

}  // namespace lockstep
