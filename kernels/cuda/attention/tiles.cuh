// Code that the tensor core kernels of attention share: which tile a block takes next, and how the
// rows of a head are loaded into shared memory.
#pragma once

#include "kernels/core/packed_documents.h"
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/common/fragment.cuh"
#include "kernels/cuda/common/panels.cuh"
#include "kernels/cuda/common/raise_amax.cuh"
#include "kernels/cuda/common/reduce.cuh"

namespace lockstep {

inline constexpr int kOwnRows = 64;  // Per warpgroup.

// A block: one warpgroup loads and `kConsumers_` compute. Two share the streamed rows of a tile;
// one alone takes less than half the time per step, which counts where tiles are few.
template <int kConsumers_>
struct TileBlock {
  static constexpr int kConsumers = kConsumers_;
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  static constexpr int kRows =
      kConsumers * kOwnRows;  // For a tile, counted from the document's start.
  static constexpr int kConsumerWarps = kConsumers * kWarpgroup / kWarp;
};

// A tile of rows of one document, for one head.
struct Tile {
  int start;   // First row of the document.
  int length;  // Rows of the document; 0: no more tiles.
  int first;   // The tile's first row in the document.
  int head;
};

// The tiles of all documents, numbered by `rank`, those that walk most rows first. A tile walks its
// document up to itself (a query's keys) or from itself on (a key's queries), so that tiles are
// ordered by their distance from one end of the document. Empty documents have no tiles. Called by
// whole warps, with ranks that only grow.
template <bool kFromEnd, int kTileRows>
class TileList {
 public:
  __device__ TileList(const In<std::int32_t>& cu_seqlens, const In<std::int32_t>& cu_seqlens_padded,
                      int heads)
      : documents_{cu_seqlens, cu_seqlens_padded}, heads_(heads) {
    std::int32_t longest = 0;
    const auto slots = static_cast<int>(slots_of(documents_));
#pragma unroll 8
    for (int d = lane_index(); d < slots; d += kWarp) {
      const std::int32_t rows = tokens_of(documents_, d);
      longest = rows > longest ? rows : longest;
      used_ = rows > 0 ? d + 1 : used_;
    }
    longest = __reduce_max_sync(kAllLanes, longest);
    used_ = __reduce_max_sync(kAllLanes, used_);
    distance_ = (longest + kTileRows - 1) / kTileRows - 1;
    if (distance_ >= 0) count_ = documents() * heads_;
  }
  __device__ Tile at_rank(int rank) {
    while (distance_ >= 0 && rank >= before_ + count_) {
      before_ += count_;
      --distance_;
      if (distance_ >= 0) count_ = documents() * heads_;
    }
    if (distance_ < 0) return {0, 0, 0, 0};
    const int place = rank - before_;
    const int d = document(place / heads_);
    const int length = tokens_of(documents_, d);
    const int last = (length - 1) / kTileRows;
    return {first_row_of(documents_, d), length,
            kTileRows * (kFromEnd ? last - distance_ : distance_), place % heads_};
  }

 private:
  // The lanes whose document has a tile at this distance.
  __device__ unsigned mask(int first) const {
    const int d = first + lane_index();
    return __ballot_sync(kAllLanes, d < used_ && tokens_of(documents_, d) > kTileRows * distance_);
  }
  __device__ int documents() const {
    int n = 0;
    for (int first = 0; first < used_; first += kWarp) n += __popc(mask(first));
    return n;
  }
  // The document that has `n` others before it at this distance.
  __device__ int document(int n) const {
    for (int first = 0;; first += kWarp) {
      const unsigned found = mask(first);
      if (n < __popc(found)) return first + static_cast<int>(__fns(found, 0, n + 1));
      n -= __popc(found);
    }
  }
  struct {
    In<std::int32_t> cu_seqlens, cu_seqlens_padded;
  } documents_;
  int heads_;
  int used_ = 0;  // Slots up to the last document with rows: a large capacity costs one look.
  int distance_;
  int before_ = 0;  // Tiles at greater distances.
  int count_ = 0;   // Tiles at this one.
};

// The rank of a block's tile in round `round`. Rounds go forth and back over the blocks in
// Thue-Morse order (forth if an even number of bits is set), so that all blocks get about the same
// work.
__device__ __forceinline__ int rank_of(int round) {
  const int blocks = static_cast<int>(gridDim.x);
  const int block = static_cast<int>(blockIdx.x);
  return round * blocks +
         (__popc(static_cast<unsigned>(round)) % 2 == 0 ? block : blocks - 1 - block);
}

// Hands over buffers of the loading warpgroup. A buffer is announced when the next one has been
// requested, or before the warpgroup has to wait.
class Producer {
 public:
  __device__ void acquire(Barrier& free, std::uint32_t phase) {
    if (free.over(phase)) return;
    finish();
    free.wait(phase);
  }
  __device__ void commit(Barrier& full) {
    close_copies();
    if (open_ != nullptr) announce<1>();
    open_ = &full;
  }
  __device__ void finish() {
    if (open_ != nullptr) announce<0>();
    open_ = nullptr;
  }

 private:
  template <int kOpen>
  __device__ void announce() {
    wait_for_copies<kOpen>();
    fence_for_tensor_core();
    open_->arrive();
  }
  Barrier* open_ = nullptr;
};

// c[m, n] = DOT over the channels of rows m of `own` and n of `others`.
template <int kWidth, int kOwnPanel, int kOtherPanel, int kTiles>
__device__ __forceinline__ void start_dots(float (&c)[kTiles][4], std::uint32_t own,
                                           std::uint32_t others) {
  const std::uint64_t a = factor_along_k(own);
  const std::uint64_t b = factor_along_k(others);
#pragma unroll
  for (int k = 0; k < kWidth / kStep; ++k) {
    const int panel = k / 4;
    const int step = k % 4 * 32;
    wgmma<0>(c, factor_at(a, panel * kOwnPanel + step), factor_at(b, panel * kOtherPanel + step),
             k != 0);
  }
}
// Continues sum[m, e] with weights[m, k] times channel e of row k of `others`, for 16 * kSteps
// rows.
template <int kPanel, int kTiles, int kSteps>
__device__ __forceinline__ void start_sums(float (&sum)[kTiles][4],
                                           const std::uint32_t (&weights)[kSteps][4],
                                           std::uint32_t others) {
  const std::uint64_t b = factor_across_k(others, kPanel);
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
    wgmma<1>(sum, weights[k], factor_at(b, k * kStep * kPanelRow), 1);
}

// expn of the contract with the same bits, except that NaN gives the largest number. No NaN is lost
// by that: in the forward pass a NaN score makes the row's m NaN, hence its O and LSE (a score of
// +Inf gives infinite O and LSE, where the contract has NaN); in the backward pass such a row's
// delta is NaN, hence its ds. There is no clamp, whose only use is to avoid overflow on the way to
// +0. Several numbers advance together step by step: left to itself, the assembler saves registers
// and computes one after the other.
template <int kNumbers>
__device__ __forceinline__ void expn_of_numbers(float (&x)[kNumbers]) {
  float t[kNumbers];
  float r[kNumbers];
  float p[kNumbers];
  const auto each = [](auto step) {
#pragma unroll
    for (int k = 0; k < kNumbers; ++k) step(k);
  };
  each([&](int k) { t[k] = fma(x[k], kLog2E, kRound); });
  each([&](int k) { r[k] = sub(t[k], kRound); });
  each([&](int k) { p[k] = fma(r[k], -kLn2High, x[k]); });
  each([&](int k) { r[k] = fma(r[k], kLn2Low, p[k]); });
  each([&](int k) { p[k] = exp_poly(r[k]); });
  each([&](int k) { p[k] = from_bits(bits(p[k]) + (bits(t[k]) << 23)); });
  each([&](int k) { x[k] = x[k] < -87.0f ? 0.0f : p[k]; });
}
// max of the contract in one instruction; NaN if an argument is NaN.
__device__ __forceinline__ float max_of(float a, float b) {
  float m;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b));
  return m;
}

// The thread's rows: g and g + 8 of its warp's 16.
__device__ __forceinline__ int own_row(int h) {
  return warp_index() % (kWarpgroup / kWarp) * 16 + lane_group() + 8 * h;
}

// Stores row `row` of a head in the lane's columns: to[e] = st(f(add(sum[x][e], +0))). Returns the
// magnitudes of what it has stored.
template <int kTiles, class F>
__device__ __forceinline__ StoredMagnitudes store_own(bf16* to, int hd,
                                                      const float (&sum)[kTiles][4], int h, F f) {
  StoredMagnitudes stored;
  const bool pairs = reinterpret_cast<std::uintptr_t>(to) % 4 == 0 && hd % 2 == 0;
  const auto each = [&](auto put) {
#pragma unroll
    for (int x = 0; x < kTiles; ++x) {
      put(8 * x + 2 * lane_place(),
          stored_pair(f(add(sum[x][2 * h], 0.0f)), f(add(sum[x][2 * h + 1], 0.0f))));
    }
  };
  if (pairs) {
    each([&](int channel, std::uint32_t both) {
      stored.take_if(channel < hd, both);
      if (channel < hd) *reinterpret_cast<std::uint32_t*>(to + channel) = both;
    });
  } else {
    each([&](int channel, std::uint32_t both) {
      stored.take_if(channel < hd, channel + 1 < hd ? both : both & 0xffffu);
      if (channel < hd) to[channel] = {static_cast<std::uint16_t>(both)};
      if (channel + 1 < hd) to[channel + 1] = {static_cast<std::uint16_t>(both >> 16)};
    });
  }
  return stored;
}

// Writes +0 to columns of all rows of no document; the computing warps of all blocks share them.
template <class T>
__device__ void clear_unowned(const In<std::int32_t>& row_document, const Out<T>& out,
                              std::int64_t column, std::int64_t columns) {
  const int warps = (static_cast<int>(blockDim.x) - kWarpgroup) / kWarp;
  const int own = static_cast<int>(blockIdx.x) * warps + warp_index() - kWarpgroup / kWarp;
  for (std::int64_t row = own; row < out.rows;
       row += static_cast<std::int64_t>(gridDim.x) * warps) {
    if (at(row_document, 0, row) >= 0) continue;
    for (std::int64_t e = lane_index(); e < columns; e += kWarp)
      at(out, row, column + e) = st<T>(0.0f);
  }
}

}  // namespace lockstep
