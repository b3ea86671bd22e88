// Operands of the tensor core, taken from tiles in shared memory.
#pragma once

#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace lockstep {

// A lane's place in a 16 x 8 tile of results: rows `group` and `group + 8`, columns `2 * place` and
// `2 * place + 1`.
__device__ __forceinline__ int lane_group() { return lane_index() / 4; }
__device__ __forceinline__ int lane_place() { return lane_index() % 4; }

__device__ __forceinline__ std::uint32_t pair(bf16 low, bf16 high) {
  return low.bits | static_cast<std::uint32_t>(high.bits) << 16;
}
// st of both in one instruction, which rounds to nearest even and gives 0x7fff for NaN.
__device__ __forceinline__ std::uint32_t stored_pair(float low, float high) {
  std::uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// A tile whose rows run along k.
template <int kPitch>
struct AlongK {
  static_assert(kPitch % 2 == 0);
  const bf16 (*tile)[kPitch];
  __device__ std::uint32_t operator()(int m, int k) const {
    return *reinterpret_cast<const std::uint32_t*>(&tile[m][k]);
  }
};
// A tile whose rows run across k.
template <int kPitch>
struct AcrossK {
  const bf16 (*tile)[kPitch];
  __device__ std::uint32_t operator()(int m, int k) const {
    return pair(tile[k][m], tile[k + 1][m]);
  }
};

// Fragments of a factor: rows m0 .. m0 + 15 or n0 .. n0 + 7 at k0 .. k0 + 15. pair_at(m, k) gives k
// and k + 1.
template <class PairAt>
__device__ __forceinline__ void take_a(std::uint32_t (&a)[4], const PairAt& pair_at, int m0,
                                       int k0) {
#pragma unroll
  for (int r = 0; r < 4; ++r)
    a[r] = pair_at(m0 + lane_group() + 8 * (r % 2), k0 + 2 * lane_place() + 8 * (r / 2));
}
template <class PairAt>
__device__ __forceinline__ void take_b(std::uint32_t (&b)[2], const PairAt& pair_at, int n0,
                                       int k0) {
#pragma unroll
  for (int r = 0; r < 2; ++r) b[r] = pair_at(n0 + lane_group(), k0 + 2 * lane_place() + 8 * r);
}

// Two tiles of results whose columns are 8 apart become the left operand of the next product: a[m,
// k] = st(c[m, k]).
__device__ __forceinline__ void take_a(std::uint32_t (&a)[4], const float (&low)[4],
                                       const float (&high)[4]) {
  a[0] = stored_pair(low[0], low[1]);
  a[1] = stored_pair(low[2], low[3]);
  a[2] = stored_pair(high[0], high[1]);
  a[3] = stored_pair(high[2], high[3]);
}

// Stores to global memory in one instruction; for an assignment the compiler may use one per word.
__device__ __forceinline__ void store_16(void* to, std::uint32_t a, std::uint32_t b,
                                         std::uint32_t c, std::uint32_t d) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void store_8(void* to, std::uint32_t a, std::uint32_t b) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(a), "r"(b) : "memory");
}

// Eight neighbours, moved at once where the address allows it.
struct alignas(16) Vec8 {
  std::uint32_t pairs[4];
};
__device__ __forceinline__ bool moves_vec8(const bf16* data, std::int64_t pitch) {
  return (reinterpret_cast<std::uintptr_t>(data) |
          static_cast<std::uintptr_t>(pitch) * sizeof(bf16)) %
             sizeof(Vec8) ==
         0;
}
// Loads the first `count` of eight neighbours. The others are +0, and their memory is not read.
__device__ __forceinline__ Vec8 load_vec8(const bf16* from, std::int64_t count, bool aligned) {
  if (aligned && count >= 8) return *reinterpret_cast<const Vec8*>(from);
  Vec8 all = {};
#pragma unroll
  for (int x = 0; x < 8; ++x) {
    if (x < count) all.pairs[x / 2] |= static_cast<std::uint32_t>(from[x].bits) << 16 * (x % 2);
  }
  return all;
}

}  // namespace lockstep
