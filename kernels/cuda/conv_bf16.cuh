// bf16 convolution of width 4 that reads every element about once: a thread walks down four neighbouring channels with
// the last rows in registers. Backward: a block owns 32 physical rows, as CS does, and looks three rows ahead. Rows
// are taken some at a time; where these all have four taps in their document, nothing is asked of a row.
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
// Rows of a block, and which batches of them all have four taps in their document: in one, for a document's first rows
// have fewer. The last batch may be short.
template <int kRows, int kBatch>
struct ConvRows {
  ConvRow row[kRows];
  bool plain[(kRows + kBatch - 1) / kBatch];

  // By the whole block.
  template <class Op>
  __device__ __forceinline__ void find(const Op& op, std::int64_t first) {
    const int k = static_cast<int>(threadIdx.x);
    if (k < kRows) row[k] = conv_row(op, first + k);
    __syncthreads();
    if (k * kBatch < kRows) {
      bool all = true;
      for (int t = k * kBatch; t < kRows && t < (k + 1) * kBatch; ++t) {
        all = all && row[t].document >= 0 && row[t].first_tap == 0;
      }
      plain[k] = all;
    }
    __syncthreads();
  }
};

// Four channels of a row; outside the microbatch those of another row, for rows that do not use them.
__device__ __forceinline__ Quad conv_quad(const In<bf16>& from, std::int64_t row, std::int64_t c) {
  const std::int64_t inside = row < 0 ? 0 : smaller(row, from.rows - 1);
  return *reinterpret_cast<const Quad*>(&at(from, inside, c));
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

using ForwardRows = ConvRows<kForwardRows, kForwardBatch>;

// `x`: the last four rows. `read`: rows t .. t + kForwardBatch - 1 of the block, and then as many after them.
template <bool kPlain>
__device__ __forceinline__ void conv_forward_batch(const ConvForward<bf16>& op, std::int64_t first, std::int64_t c,
                                                   int t, const ConvChannels& channels, const ConvRow* rows,
                                                   float (&x)[kLanes][kTaps], Quad (&read)[kForwardBatch]) {
#pragma unroll
  for (int k = 0; k < kForwardBatch; ++k) {
    const ConvRow row = kPlain ? ConvRow{} : rows[t + k];
    float a[kLanes];
#pragma unroll
    for (int e = 0; e < kLanes; ++e) {
      x[e][k % kTaps] = read[k][e];
      a[e] = add(tap_chain<kPlain>(channels, e, x[e], k, row.first_tap), 0.0f);
    }
    const Quad y = row.document >= 0 ? stored_gates(a) : Quad{};
    if (kPlain || first + t + k < op.y.rows) y.store(&at(op.y, first + t + k, c));
    if (t + k + kForwardBatch < kForwardRows) read[k] = conv_quad(op.x, first + t + k + kForwardBatch, c);
  }
}

__device__ __forceinline__ std::int64_t own_channels(unsigned block) {
  return kLanes * (static_cast<std::int64_t>(block) * kConvThreads + threadIdx.x);
}
// Grid: (32 rows, 512 channels).
static __global__ void __launch_bounds__(kConvThreads, 6) conv_forward_bf16(ConvForward<bf16> op) {
  start_after_last_kernel();
  __shared__ ForwardRows rows;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kForwardRows;
  const std::int64_t c = own_channels(blockIdx.y);
  rows.find(op, first);
  if (c >= op.x.cols) return;
  const ConvChannels channels(op, c);
  float x[kLanes][kTaps];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const Quad before = conv_quad(op.x, first + k - kAhead, c);
#pragma unroll
    for (int e = 0; e < kLanes; ++e) x[e][k + 1] = before[e];
  }
  Quad read[kForwardBatch];
#pragma unroll
  for (int k = 0; k < kForwardBatch; ++k) read[k] = conv_quad(op.x, first + k, c);
#pragma unroll 1
  for (int t = 0; t < kForwardRows; t += kForwardBatch) {
    if (rows.plain[t / kForwardBatch]) {
      conv_forward_batch<true>(op, first, c, t, channels, rows.row, x, read);
    } else {
      conv_forward_batch<false>(op, first, c, t, channels, rows.row, x, read);
    }
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

using BackwardRows = ConvRows<kConvRows, kTaps>;

// Grid: (512 channels, 32 rows).
static __global__ void __launch_bounds__(kConvThreads, 4) conv_backward_bf16(ConvBackward<bf16> op) {
  start_after_last_kernel();
  __shared__ BackwardRows rows;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * kRowBlock;
  const std::int64_t c = own_channels(blockIdx.x);
  rows.find(op, first);
  if (c >= op.x.cols) return;
  const ConvChannels channels(op, c);
  ConvChannel own[kLanes] = {};
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const Quad x = conv_quad(op.x, first + k - kAhead, c);
#pragma unroll
    for (int e = 0; e < kLanes; ++e) own[e].x[k + 1] = x[e];
  }
  // Four rows are read before they are needed.
  Quad x[kTaps];
  Quad dy[kTaps];
#pragma unroll
  for (int k = 0; k < kTaps; ++k) {
    x[k] = conv_quad(op.x, first + k, c);
    dy[k] = conv_quad(op.dy, first + k, c);
  }
  const auto store = [&](int t, const Quad& dx) {
    if (t >= 0 && first + t < op.dx.rows) dx.store(&at(op.dx, first + t, c));
  };
  const auto four_rows = [&]<bool kPlain>(int t) {
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      store(t + k - kAhead, conv_backward_row<kPlain, true>(channels, own, rows.row, t + k, x[k], dy[k]));
      x[k] = conv_quad(op.x, first + t + k + kTaps, c);
      dy[k] = conv_quad(op.dy, first + t + k + kTaps, c);
    }
  };
#pragma unroll 1
  for (int t = 0; t < kRowBlock; t += kTaps) {
    rows.plain[t / kTaps] ? four_rows.template operator()<true>(t) : four_rows.template operator()<false>(t);
  }
#pragma unroll
  for (int u = 0; u <= kTaps; ++u) {
    const auto sum = [&](int e) { return u < kTaps ? own[e].dweight[u] : own[e].dbias; };
    *reinterpret_cast<float4*>(&conv_partial(op, first / kRowBlock, u, c)) =
        make_float4(sum(0), sum(1), sum(2), sum(3));
  }
  const auto rows_ahead = [&]<bool kPlain>() {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int t = kRowBlock + k;
      store(t - kAhead, conv_backward_row<kPlain, false>(channels, own, rows.row, t, x[k], dy[k]));
    }
  };
  rows.plain[kRowBlock / kTaps] ? rows_ahead.template operator()<true>() : rows_ahead.template operator()<false>();
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
