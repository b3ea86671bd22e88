// Code that the bf16 convolutions of width 4 share. A warp walks down neighbouring channels, four
// or two (kLanes) per lane, for a block of 32 rows. The last rows are in registers, and the next
// ones are being copied to shared memory.
#pragma once

#include "kernels/cuda/common/barrier.cuh"
#include "kernels/cuda/common/row_vec4.cuh"

namespace lockstep {

inline constexpr int kTaps = 4;
inline constexpr int kAhead = kTaps - 1;
inline constexpr int kConvThreads = 128;
inline constexpr int kConvWarps = kConvThreads / kWarp;
inline constexpr int kWalk = static_cast<int>(kRowBlock);

// The lane's channels of a row.
struct alignas(4) Vec2 {
  std::uint32_t pairs[1];

  __device__ __forceinline__ float operator[](int c) const {
    return from_bits(c == 0 ? pairs[0] << 16 : pairs[0] & 0xffff0000u);
  }
};
template <int kLanes>
using ConvVec = std::conditional_t<kLanes == 4, Vec4, Vec2>;
__device__ __forceinline__ Vec4 conv_vec(const float (&x)[4]) { return vec4(x); }
__device__ __forceinline__ Vec2 conv_vec(const float (&x)[2]) {
  return {{stored_pair(x[0], x[1])}};
}

template <int kLanes>
struct ConvChannels {
  float weight[kLanes][kTaps];
  float bias[kLanes];

  template <class Op>
  __device__ __forceinline__ ConvChannels(const Op& op, int c) {
#pragma unroll
    for (int e = 0; e < kLanes; ++e) {
      const float4 taps = *reinterpret_cast<const float4*>(&at(op.weight, c + e, 0));
      bias[e] = at(op.bias, 0, c + e);
#pragma unroll
      for (int u = 0; u < kTaps; ++u) weight[e][u] = part(taps, u);
    }
  }
};

// The place of a warp's walk. Grid: (the channels of a block, 32 rows).
template <int kLanes>
struct ConvWalk {
  int first;   // Row.
  int inside;  // Rows of the microbatch from `first` on.
  int c0;      // The warp's first channel.
  int c;       // The lane's first channel; any valid one if the lane has none.
  bool mine;   // Whether the lane has channels.

  __device__ __forceinline__ explicit ConvWalk(const In<bf16>& x) {
    first = static_cast<int>(blockIdx.y) * kWalk;
    inside = static_cast<int>(x.rows) - first;
    c0 = kLanes * kWarp * (static_cast<int>(blockIdx.x) * kConvWarps + warp_index());
    const int own = c0 + kLanes * lane_index();
    mine = own < x.cols;
    c = mine ? own : 0;
  }
};
inline dim3 walk_grid(const In<bf16>& x, int lanes) {
  return dim3(blocks_for(x.cols, lanes * kConvThreads), blocks_for(x.rows, kWalk));
}

// Returns how many rows before row k of a walk lie in its document, at most three; -1 for rows of
// no document and past the microbatch. Both words are loaded at once, whichever row it is.
template <class Op, int kLanes>
__device__ __forceinline__ int reach_of(const Op& op, const ConvWalk<kLanes>& walk, int k) {
  const bool inside = k < walk.inside;
  const int row = inside ? walk.first + k : 0;
  const int document = op.row_document.data[row];
  const int position = op.row_position.data[row];
  const int before = position < kAhead ? position : kAhead;
  return inside && document >= 0 ? before : -1;
}
// The reach of a walk's rows and four more, for a block.
struct ConvReach {
  alignas(4) signed char rows[kWalk + kTaps];

  // Called by the whole block.
  template <class Op, int kLanes>
  __device__ __forceinline__ void find(const Op& op, const ConvWalk<kLanes>& walk) {
    const int k = static_cast<int>(threadIdx.x);
    if (k < kWalk + kTaps) rows[k] = static_cast<signed char>(reach_of(op, walk, k));
    __syncthreads();
  }
  // Whether rows t .. t + 3 all have four taps in their document; t is a multiple of 4.
  __device__ __forceinline__ bool is_plain(int t) const {
    return *reinterpret_cast<const std::uint32_t*>(rows + t) == 0x03030303u;
  }
};

// A warp's channels of some rows. Row t of the walk is at index t % kRows.
template <int kRows, int kLanes>
struct alignas(16) ConvRing {
  ConvVec<kLanes> rows[kRows][kWarp];
};
template <int kLanes>
inline constexpr std::uint32_t kRingRow = sizeof(ConvVec<kLanes>) * kWarp;

// Copies the rows of an operand into a ring, kTurn at a time: 16 bytes per lane, so that one copy
// by all lanes covers several rows.
template <int kRows, int kTurn, int kLanes>
struct ConvStream {
  static constexpr int kPieces = kRingRow<kLanes> / 16;
  static constexpr int kCopyRows = kWarp / kPieces;
  static_assert(kRows % kTurn == 0 && kTurn % kCopyRows == 0);
  const bf16* next;
  std::int64_t step;
  std::uint32_t to;

  __device__ __forceinline__ ConvStream(const In<bf16>& from, ConvRing<kRows, kLanes>& ring,
                                        const ConvWalk<kLanes>& walk) {
    const int lane = lane_index();
    next = row_at(from, walk.first + lane / kPieces, walk.c0 + 8 * (lane % kPieces));
    step = static_cast<std::int64_t>(static_cast<int>(from.pitch)) * kCopyRows;
    to = kept_address(&ring) + 16 * lane;
  }
  // The end of the copies after `rows` rows or the microbatch, relative to the lane, whose copies
  // begin at a row of its own and at channels that may not exist.
  static __device__ __forceinline__ int end(const In<bf16>& from, const ConvWalk<kLanes>& walk,
                                            int rows) {
    const int lane = lane_index();
    if (walk.c0 + 8 * (lane % kPieces) >= from.cols) return 0;
    return (walk.inside < rows ? walk.inside : rows) - lane / kPieces;
  }
  // Copies rows t .. t + kTurn - 1 of the walk that lie before `end`.
  __device__ __forceinline__ void fetch(int t, int end) {
    const std::uint32_t place = to + static_cast<std::uint32_t>(t) % kRows * kRingRow<kLanes>;
#pragma unroll
    for (int j = 0; j < kTurn; j += kCopyRows) {
      asm volatile(
          "{\n .reg .pred p;\n setp.lt.s32 p, %0, %1;\n @p cp.async.cg.shared.global [%2], [%3], "
          "16;\n}" ::"r"(t + j),
          "r"(end), "r"(place + j * kRingRow<kLanes>), "l"(next)
          : "memory");
      next += step;
    }
    close_copies();
  }
};
// Waits until the whole warp's copies have arrived and its earlier reads are done.
__device__ __forceinline__ void await_turn() {
  wait_for_copies<0>();
  __syncwarp();
}
template <int kLanes>
__device__ __forceinline__ ConvVec<kLanes> ring_vec(std::uint32_t place) {
  ConvVec<kLanes> q;
  if constexpr (kLanes == 4) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(q.pairs[0]), "=r"(q.pairs[1])
                 : "r"(place)
                 : "memory");
  } else {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(q.pairs[0]) : "r"(place) : "memory");
  }
  return q;
}
// Row k - 3 before the walk. Outside the microbatch it is another row, whose value is not used.
template <int kLanes>
__device__ __forceinline__ ConvVec<kLanes> row_before(const In<bf16>& x,
                                                      const ConvWalk<kLanes>& walk, int k) {
  const int row = walk.first + k - kAhead;
  return *reinterpret_cast<const ConvVec<kLanes>*>(row_at(x, row < 0 ? 0 : row, walk.c));
}

// Stores to global memory in one predicated instruction, since a branch would keep the compiler
// from interleaving rows.
__device__ __forceinline__ void store_if(bool does, bf16* to, const Vec4& x) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.u32 p, %0, 0;\n @p st.global.v2.b32 [%1], {%2, %3};\n}" ::"r"(
          static_cast<std::uint32_t>(does)),
      "l"(to), "r"(x.pairs[0]), "r"(x.pairs[1])
      : "memory");
}
__device__ __forceinline__ void store_if(bool does, bf16* to, const Vec2& x) {
  asm volatile("{\n .reg .pred p;\n setp.ne.u32 p, %0, 0;\n @p st.global.b32 [%1], %2;\n}" ::"r"(
                   static_cast<std::uint32_t>(does)),
               "l"(to), "r"(x.pairs[0])
               : "memory");
}

// The sum of a row before the last add. k = t % 4 is known where loops unroll; row i of `x` is at
// index i % 4.
template <bool kPlain, int kLanes>
__device__ __forceinline__ float tap_chain(const ConvChannels<kLanes>& channels, int e,
                                           const float (&x)[kTaps], int k, int reach) {
  float a = channels.bias[e];
#pragma unroll
  for (int u = 0; u < kTaps; ++u) {
    const float next = fma(channels.weight[e][u], x[(k + 1 + u) % kTaps], a);
    a = kPlain || kAhead - u <= reach ? next : a;
  }
  return a;
}

}  // namespace lockstep
