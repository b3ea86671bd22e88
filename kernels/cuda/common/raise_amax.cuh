// An amax word rises to the magnitudes of stored bf16 numbers: arithmetic.md 5.2.
#pragma once

#include "kernels/core/row_segments.h"
#include "kernels/cuda/common/fragment.cuh"

namespace lockstep {

// What a thread has stored: the larger magnitude of each half of its pairs. Magnitudes of bf16 are
// ordered as integers.
struct StoredMagnitudes {
  std::uint32_t halves = 0;

  __device__ __forceinline__ void take(std::uint32_t pair) {
    halves = __vmaxu2(halves, pair & 0x7fff7fffu);
  }
  // Eight neighbours; those behind a row's end are zeros. Numbers that are not bf16 have no amax.
  template <class T>
  __device__ __forceinline__ void take_vec8(const float (&stored)[8]) {
    if constexpr (std::is_same_v<T, bf16>) {
#pragma unroll
      for (int k = 0; k < 8; k += 2) take(stored_pair(stored[k], stored[k + 1]));
    }
  }
  // All pairs of a vector.
  template <class Vec>
  __device__ __forceinline__ void take_all(const Vec& stored) {
#pragma unroll
    for (const std::uint32_t pair : stored.pairs) take(pair);
  }
  __device__ __forceinline__ void take_if(bool does, std::uint32_t pair) { take(does ? pair : 0); }
  __device__ __forceinline__ std::uint32_t word() const {
    const std::uint32_t low = halves << 16, high = halves & 0xffff0000u;
    return low > high ? low : high;
  }
};

// Many words meet in one: the threads of a warp that are here ask memory once, and only if their
// own is larger.
__device__ __forceinline__ void raise_amax(std::uint32_t* word, const StoredMagnitudes& stored) {
  const unsigned here = __activemask();
  const std::uint32_t most = __reduce_max_sync(here, stored.word());
  if (lane_index() == __ffs(static_cast<int>(here)) - 1 &&
      most > *static_cast<volatile std::uint32_t*>(word))
    atomicMax(word, most);
}
// The same of one number.
__device__ __forceinline__ void raise_amax(std::uint32_t* word, bf16 stored) {
  StoredMagnitudes one;
  one.take(stored.bits);
  raise_amax(word, one);
}
// The same of what a thread has stored in row `row` of an op whose rows are in segments. Threads of
// a warp that stands in several ask memory each.
template <class Op>
__device__ __forceinline__ void raise_amax_of_row(const Op& op, std::int64_t row,
                                                  const StoredMagnitudes& stored) {
  if (op.rows.data == nullptr) return raise_amax(op.amax.data, stored);
  const std::int64_t segment =
      RowSegments{op.start.data, op.rows.data, 0, op.amax.cols}.of_row(row);
  if (segment < 0) return;
  std::uint32_t* const word = op.amax.data + segment;
  const unsigned here = __activemask();
  const auto own = static_cast<int>(segment);
  const int first = __shfl_sync(here, own, __ffs(static_cast<int>(here)) - 1);
  if (__all_sync(here, own == first)) return raise_amax(word, stored);
  if (stored.word() > *static_cast<volatile std::uint32_t*>(word)) atomicMax(word, stored.word());
}

}  // namespace lockstep
