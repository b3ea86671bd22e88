// Steps of FDA32 of a whole warpgroup on the tensor core: m64n128k32 of fp8 codes. Both factors lie
// in shared memory as in wgmma.cuh, their rows along k: a panel's row holds 128 codes, which is one
// run of DOT8, and a step of 32 is 32 bytes.
#pragma once

#include "kernels/core/fp8.h"
#include "kernels/cuda/common/wgmma.cuh"

namespace lockstep {

// The words of factor_along_k(). The upper one does not depend on the address, and the compiler
// computes with one register instead of two.
inline constexpr auto kUpperOfFactor = static_cast<std::uint32_t>(factor_along_k(0) >> 32);
__device__ __forceinline__ std::uint32_t lower_of_factor(std::uint32_t address) {
  return static_cast<std::uint32_t>(factor_along_k(address));
}

#define LOCKSTEP_WGMMA_FP8(left, right)                                                           \
  asm volatile(                                                                                   \
      "{\n .reg .pred p;\n .reg .b64 a, b;\n setp.ne.b32 p, %66, 0;\n"                            \
      " mov.b64 a, {%64, %67};\n mov.b64 b, {%65, %67};\n"                                        \
      " wgmma.mma_async.sync.aligned.m64n128k32.f32." left "." right                              \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "   \
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "     \
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "     \
      "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, a, b, p, 1, 1;\n}"                 \
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), \
        "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), \
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), \
        "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), \
        "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]), \
        "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]), \
        "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[10][0]),               \
        "+f"(d[10][1]), "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]),           \
        "+f"(d[11][2]), "+f"(d[11][3]), "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]),           \
        "+f"(d[12][3]), "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]),           \
        "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]), "+f"(d[15][0]),           \
        "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])                                            \
      : "r"(a), "r"(b), "r"(keep), "n"(kUpperOfFactor))

// d[m, n] = FDA32(a[m, 0..31], b[n, 0..31], keep ? d[m, n] : +0). Factors are given by their lower
// words; 16 bytes more of address are 1 more. Warp w of the warpgroup holds
// rows 16w to 16w + 15; d[x] is the fragment (mma.cuh) of the columns 8x to 8x + 7.
template <class A, class B>
__device__ __forceinline__ void wgmma_fp8(float (&d)[16][4], std::uint32_t a, std::uint32_t b,
                                          int keep) {
  constexpr bool kLeft = std::is_same_v<A, e4m3>, kRight = std::is_same_v<B, e4m3>;
  if constexpr (kLeft && kRight) {
    LOCKSTEP_WGMMA_FP8("e4m3", "e4m3");
  } else if constexpr (kLeft) {
    LOCKSTEP_WGMMA_FP8("e4m3", "e5m2");
  } else if constexpr (kRight) {
    LOCKSTEP_WGMMA_FP8("e5m2", "e4m3");
  } else {
    LOCKSTEP_WGMMA_FP8("e5m2", "e5m2");
  }
}
#undef LOCKSTEP_WGMMA_FP8

}  // namespace lockstep
