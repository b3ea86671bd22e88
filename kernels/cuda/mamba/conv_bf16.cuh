// bf16 convolution of width 4 that reads every element about once. Rows are taken four at a time;
// if all four have four taps in their document, no row is tested. Backward: sums cover 32 physical
// rows, as in CS, and a walk reads three rows ahead.
#pragma once

#include "kernels/cuda/common/gate.cuh"
#include "kernels/cuda/common/raise_amax.cuh"
#include "kernels/cuda/mamba/conv_column_strip.cuh"
#include "kernels/ops/conv.h"

namespace lockstep {

// Computes row k of four exactly if its approximation is not sure. The code exists once for all
// four rows, and k is chosen at run time: it rarely runs, and in small packs instruction fetch
// dominates.
__device__ __forceinline__ void make_sure(int k, const float (&sums)[kTaps][4], Vec4 (&y)[kTaps]) {
  constexpr int kLanes = 4;
  float row[kLanes] = {};
#pragma unroll
  for (int i = 0; i < kTaps; ++i) {
#pragma unroll
    for (int e = 0; e < kLanes; ++e) row[e] = i == k ? sums[i][e] : row[e];
  }
#pragma unroll
  for (int e = 0; e < kLanes; ++e) row[e] = add(row[e], 0.0f);
  const Gates near = near_gates(row);
  const Vec4 exact = near.sure ? near.stored : exact_gates(row);
#pragma unroll
  for (int i = 0; i < kTaps; ++i) y[i] = i == k ? exact : y[i];
}

// Warps do not wait for each other: each keeps the reach of its own rows, one per lane.
static __global__ void __launch_bounds__(kConvThreads, 5) conv_forward_bf16(ConvForward<bf16> op) {
  pdl_begin();
  constexpr int kLanes = 4, kRows = kWalk,
                kTurn = kWalk / 2;  // One half is loaded while the other is used.
  __shared__ ConvRing<kRows, kLanes> rings[kConvWarps];
  const ConvWalk<kLanes> walk(op.x);
  if (walk.c0 >= op.x.cols) return;
  ConvRing<kRows, kLanes>& ring = rings[warp_index()];
  ConvStream<kRows, kTurn, kLanes> stream(op.x, ring, walk);
  const int end = stream.end(op.x, walk, kWalk);
  stream.fetch(0, end);
  const int reach = reach_of(op, walk, lane_index());
  const ConvChannels<kLanes> channels(op, walk.c);
  float x[kLanes][kTaps];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const ConvVec<kLanes> before = row_before(op.x, walk, k);
#pragma unroll
    for (int e = 0; e < kLanes; ++e) x[e][k + 1] = before[e];
  }
  const std::uint32_t plain = __ballot_sync(kAllLanes, reach == kAhead);
  bf16* y_row = row_at(op.y, walk.first, walk.c);
  const int pitch = static_cast<int>(op.y.pitch);
  const int stored = walk.mine ? walk.inside : 0;
  const std::uint32_t own = kept_address(&ring.rows[0][lane_index()]);
  // Sums of four rows before their last add. Rows of no document have +0, and so has their y.
  float sums[kTaps][kLanes];
  const auto sum_rows = [&]<bool kPlain>(int t) {
    const std::uint32_t place = own + static_cast<std::uint32_t>(t) % kRows * kRingRow<kLanes>;
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      const int r = kPlain ? kAhead : __shfl_sync(kAllLanes, reach, t + k);
      const Vec4 words = ring_vec<kLanes>(place + static_cast<std::uint32_t>(k) * kRingRow<kLanes>);
#pragma unroll
      for (int e = 0; e < kLanes; ++e) {
        x[e][k] = words[e];
        const float sum = tap_chain<kPlain>(channels, e, x[e], k, r);
        sums[k][e] = r >= 0 ? sum : 0.0f;
      }
    }
  };
#pragma unroll 1
  for (int t = 0; t < kWalk; t += kTaps) {
    if (t % kTurn == 0) {
      await_turn();
      stream.fetch(t + kTurn, end);
    }
    (plain >> t & 0xfu) == 0xfu ? sum_rows.template operator()<true>(t)
                                : sum_rows.template operator()<false>(t);
    NearGates near;
    Vec4 y[kTaps];
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
#pragma unroll
      for (int e = 0; e < kLanes; e += 2) y[k].pairs[e / 2] = near.pair(sums[k][e], sums[k][e + 1]);
      near.take(y[k].pairs[0], y[k].pairs[1]);
    }
    if (!near.sure()) {
#pragma unroll 1
      for (int k = 0; k < kTaps; ++k) make_sure(k, sums, y);
    }
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      store_if(t + k < stored, y_row, y[k]);
      y_row += pitch;
    }
  }
}

// The partial sums of a row block: the four taps, then the bias. They lie in the scratch for dpre.
__device__ __forceinline__ float* conv_partial(const ConvBackward<bf16>& op, int block, int which,
                                               int c) {
  return row_at(op.dpre, block * (kTaps + 1) + which, c);
}

// The values of one channel that a thread carries from row to row; row i is at index i % 4.
struct ConvChannel {
  float x[kTaps];
  float dpre[kTaps];
  float dweight[kTaps];
  float dbias;
};

// Processes row t + k of the walk: its dpre, its terms of the sums if kSums, and dx of the row
// three before, to which all rows have then contributed. Row r contributes to row r - q if the
// reach of r is at least q.
template <bool kPlain, bool kSums, int kLanes>
__device__ __forceinline__ ConvVec<kLanes> conv_backward_row(const ConvChannels<kLanes>& channels,
                                                             ConvChannel (&own)[kLanes],
                                                             const ConvReach& reach, int t, int k,
                                                             const ConvVec<kLanes>& x,
                                                             const ConvVec<kLanes>& dy) {
  const int r = kPlain ? 0 : reach.rows[t + k];
  float dx[kLanes];
#pragma unroll
  for (int e = 0; e < kLanes; ++e) {
    ConvChannel& channel = own[e];
    channel.x[k] = x[e];
    // dsilu treats -0 and +0 alike, so the chain's last add is left out.
    const float slope = gated_slope(tap_chain<kPlain>(channels, e, channel.x, k, r));
    const float dpre = r >= 0 ? mul(dy[e], slope) : 0.0f;
    channel.dpre[k] = dpre;
    if constexpr (kSums) {
      channel.dbias = add(channel.dbias, dpre);
#pragma unroll
      for (int u = 0; u < kTaps; ++u) {
        const float term = mul(dpre, channel.x[(k + 1 + u) % kTaps]);
        if (kPlain || kAhead - u <= r) channel.dweight[u] = add(channel.dweight[u], term);
      }
    }
    float a = 0.0f;
#pragma unroll
    for (int q = 0; q < kTaps; ++q) {
      const float next = fma(channels.weight[e][kAhead - q], channel.dpre[(k + 1 + q) % kTaps], a);
      if constexpr (kPlain) {
        a = next;
      } else if (t + k >= kAhead) {
        a = reach.rows[t + k - kAhead + q] >= q ? next : a;
      }
    }
    dx[e] = add(a, 0.0f);
  }
  return conv_vec(dx);
}

template <int kLanes>
__global__ void __launch_bounds__(kConvThreads, kLanes == 4 ? 4 : 6)
    conv_backward_bf16(ConvBackward<bf16> op) {
  pdl_begin();
  constexpr int kTurn = kTaps,
                kRows = 2 * kTurn;  // One turn is loaded while the last one is used.
  __shared__ ConvReach reach;
  __shared__ ConvRing<kRows, kLanes> rings[kConvWarps][2];
  const ConvWalk<kLanes> walk(op.x);
  ConvRing<kRows, kLanes>(&ring)[2] = rings[warp_index()];
  ConvStream<kRows, kTurn, kLanes> stream_x(op.x, ring[0], walk);
  ConvStream<kRows, kTurn, kLanes> stream_dy(op.dy, ring[1], walk);
  const int end = stream_x.end(op.x, walk, kWalk + kAhead);
  stream_x.fetch(0, end);
  stream_dy.fetch(0, end);
  const ConvChannels<kLanes> channels(op, walk.c);
  ConvChannel own[kLanes] = {};
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const ConvVec<kLanes> before = row_before(op.x, walk, k);
#pragma unroll
    for (int e = 0; e < kLanes; ++e) own[e].x[k + 1] = before[e];
  }
  reach.find(op, walk);
  if (walk.c0 >= op.x.cols) return;
  bf16* dx_row = row_at(op.dx, walk.first - kAhead, walk.c);
  const int pitch = static_cast<int>(op.dx.pitch);
  const std::uint32_t own_x = kept_address(&ring[0].rows[0][lane_index()]);
  StoredMagnitudes magnitudes;
  // Four rows of the walk, or the three after it.
  const auto some_rows = [&]<bool kPlain, bool kSums>(int t) {
    const std::uint32_t place = own_x + static_cast<std::uint32_t>(t) % kRows * kRingRow<kLanes>;
    const bool begun = walk.mine && t > 0;  // The rows before are written by another walk.
#pragma unroll
    for (int k = 0; k < (kSums ? kTaps : kAhead); ++k) {
      const std::uint32_t at_x = place + static_cast<std::uint32_t>(k) * kRingRow<kLanes>;
      const ConvVec<kLanes> dx = conv_backward_row<kPlain, kSums, kLanes>(
          channels, own, reach, t, k, ring_vec<kLanes>(at_x),
          ring_vec<kLanes>(at_x + sizeof(ConvRing<kRows, kLanes>)));
      const bool stores =
          (k == kAhead ? walk.mine : begun) && (kPlain || t + k - kAhead < walk.inside);
      store_if(stores, dx_row, dx);
      for (const std::uint32_t pair : dx.pairs) magnitudes.take_if(stores, pair);
      dx_row += pitch;
    }
  };
#pragma unroll 1
  for (int t = 0; t < kWalk; t += kTaps) {
    await_turn();
    stream_x.fetch(t + kTurn, end);
    stream_dy.fetch(t + kTurn, end);
    reach.is_plain(t) ? some_rows.template operator()<true, true>(t)
                      : some_rows.template operator()<false, true>(t);
  }
  if (walk.mine) {
#pragma unroll
    for (int u = 0; u <= kTaps; ++u) {
      const auto sum = [&](int e) { return u < kTaps ? own[e].dweight[u] : own[e].dbias; };
      float* const to = conv_partial(op, static_cast<int>(blockIdx.y), u, walk.c);
#pragma unroll
      for (int e = 0; e < kLanes; e += 2) store_8(to + e, bits(sum(e)), bits(sum(e + 1)));
    }
  }
  await_turn();
  reach.is_plain(kWalk) ? some_rows.template operator()<true, false>(kWalk)
                        : some_rows.template operator()<false, false>(kWalk);
  if (op.amax.data != nullptr) raise_amax(op.amax.data, magnitudes);
}

// The last step of CS for 32 channels per warp: s = add(s, p_b) over the row blocks, with the next
// ones prefetched. Grid: (32 channels, tap or bias).
static __global__ void __launch_bounds__(kWarp) conv_fold_partials(ConvBackward<bf16> op) {
  pdl_begin();
  constexpr int kFetch = 64;
  const int c = static_cast<int>(blockIdx.x) * kWarp + lane_index();
  if (c >= op.x.cols) return;
  const int which = static_cast<int>(blockIdx.y);
  const int blocks = static_cast<int>((op.x.rows + kRowBlock - 1) / kRowBlock);
  const float* next = conv_partial(op, 0, which, c);
  const std::int64_t step = (kTaps + 1) * op.dpre.pitch;
  int left = blocks;
  const auto take = [&] {
    const float p = left > 0 ? *next : 0.0f;
    next += step;
    --left;
    return p;
  };
  float p[kFetch];
#pragma unroll
  for (int k = 0; k < kFetch; ++k) p[k] = take();
  float s = 0.0f;
#pragma unroll 1
  for (int first = 0; first < blocks; first += kFetch) {
#pragma unroll
    for (int k = 0; k < kFetch; ++k) {
      s = add(s, p[k]);
      p[k] = take();
    }
  }
  if (which == kTaps) {
    store_gradient(op.dbias, op.bias_total, 0, c, add(s, 0.0f));
  } else {
    store_gradient(op.dweight, op.weight_total, c, which, add(s, 0.0f));
  }
}

// Other widths and alignments take the plain kernels, as do packs too short for the partial sums.
inline bool runs_in_vec4(const ConvForward<bf16>& op) {
  return op.weight.cols == kTaps && op.x.cols % kVec8 == 0 &&
         all_vectorizable(op.x, op.y, op.weight, op.bias);
}
inline bool runs_in_vec4(const ConvBackward<bf16>& op) {
  return op.weight.cols == kTaps && op.x.cols % kVec8 == 0 &&
         all_vectorizable(op.x, op.dy, op.dx, op.weight, op.bias, op.dpre) &&
         (op.x.rows + kRowBlock - 1) / kRowBlock * (kTaps + 1) <= op.dpre.rows;
}
inline void run_in_vec4(CudaQueue queue, const ConvForward<bf16>& op) {
  launch(queue, walk_grid(op.x, 4), dim3(kConvThreads), kPdl, conv_forward_bf16, op);
}
inline void run_in_vec4(CudaQueue queue, const ConvBackward<bf16>& op) {
  // Few walks of four channels a lane are too few warps to hide how long an instruction takes.
  const dim3 wide = walk_grid(op.x, 4);
  if (wide.x * wide.y <= 4 * multiprocessors()) {
    launch(queue, walk_grid(op.x, 2), dim3(kConvThreads), kPdl, conv_backward_bf16<2>, op);
  } else {
    launch(queue, wide, dim3(kConvThreads), kPdl, conv_backward_bf16<4>, op);
  }
  launch_beside(
      [&] {
        launch(queue, column_grid(op.x.cols, kTaps + 1), dim3(kWarp), kPdl, conv_fold_partials, op);
      },
      op.dpre, op.dweight, op.dbias, op.weight_total, op.bias_total);
}

}  // namespace lockstep
