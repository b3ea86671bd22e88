// An amax word rises to the magnitudes of stored bf16 numbers: arithmetic.md 5.2.
#pragma once

#include "kernels/cuda/common/fragment.cuh"

namespace lockstep {

// What a thread has stored: the larger magnitude of each half of its pairs. Magnitudes of bf16 are
// ordered as integers.
struct StoredMagnitudes {
  std::uint32_t halves = 0;

  __device__ __forceinline__ void take(std::uint32_t pair) {
    halves = __vmaxu2(halves, pair & 0x7fff7fffu);
  }
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

}  // namespace lockstep
