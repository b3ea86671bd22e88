// Codes of fp8 by the conversion that sm_89 and later have. It gives the codes of fp8_code_of()
// (core/fp8.h) for every float: to nearest even, saturating, infinities too, a NaN as 7f.
#pragma once

#include <type_traits>

#include "kernels/core/fp8.h"

namespace lockstep {

// The codes of two numbers, the first in the low byte.
template <class F>
__device__ __forceinline__ std::uint32_t fp8_pair(float first, float second) {
#if __CUDA_ARCH__ >= 890
  std::uint16_t pair;
  if constexpr (std::is_same_v<F, e4m3>) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
  }
  return pair;
#else
  return fp8_code_of<F>(first).bits | static_cast<std::uint32_t>(fp8_code_of<F>(second).bits) << 8;
#endif
}

}  // namespace lockstep
