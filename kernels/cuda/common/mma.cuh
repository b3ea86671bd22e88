// One step of a bf16 product on the tensor core: FDA16 of arithmetic.md 0.3 for a 16 x 8 tile.
#pragma once

#include <cstdint>

#include "kernels/core/contract.h"

namespace lockstep {

inline constexpr int kStep = 16;  // Products of one step: a k16 group.

// c[m, n] = FDA16(a[m, 0..15], b[n, 0..15], c[m, n]) by one whole warp. With g = lane / 4 and t =
// lane % 4 a lane holds c[e]: row g + 8 * (e / 2), column 2t + e % 2. Operands are pairs of
// neighbouring k, the lower one in the lower half: a[r]: row g + 8 * (r % 2), k = 2t + 8 * (r / 2);
// b[r]: row g, k = 2t + 8 * r.
__device__ __forceinline__ void fda16(float (&c)[4], const std::uint32_t (&a)[4],
                                      const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace lockstep
