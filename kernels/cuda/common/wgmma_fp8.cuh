// Steps of FDA32 of a whole warpgroup on the tensor core: m64n128k32 and m64n192k32 of fp8 codes.
// Both factors lie in shared memory as in wgmma.cuh, their rows along k: a panel's row holds 128
// codes, which is one run of DOT8, and a step of 32 is 32 bytes.
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

// Eight columns, or 64, of accumulators as operands of an instruction, and the names of 128 and 192
// columns in it.
#define LOCKSTEP_SUMS_8(x) "+f"(d[x][0]), "+f"(d[x][1]), "+f"(d[x][2]), "+f"(d[x][3])
#define LOCKSTEP_SUMS_64(x)                                                                   \
  LOCKSTEP_SUMS_8(x), LOCKSTEP_SUMS_8(x + 1), LOCKSTEP_SUMS_8(x + 2), LOCKSTEP_SUMS_8(x + 3), \
      LOCKSTEP_SUMS_8(x + 4), LOCKSTEP_SUMS_8(x + 5), LOCKSTEP_SUMS_8(x + 6),                 \
      LOCKSTEP_SUMS_8(x + 7)
#define LOCKSTEP_NAMES_128                                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define LOCKSTEP_NAMES_192                                                           \
  LOCKSTEP_NAMES_128                                                                 \
  ", "                                                                               \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define LOCKSTEP_WGMMA_FP8_OF(columns, left, right, names, a_name, b_name, keep_name, upper, ...) \
  asm volatile("{\n .reg .pred p;\n .reg .b64 a, b;\n setp.ne.b32 p, " keep_name                  \
               ", 0;\n"                                                                           \
               " mov.b64 a, {" a_name ", " upper "};\n mov.b64 b, {" b_name ", " upper            \
               "};\n"                                                                             \
               " wgmma.mma_async.sync.aligned.m64n" columns "k32.f32." left "." right " {" names  \
               "}, a, b, p, 1, 1;\n}"                                                             \
               : __VA_ARGS__                                                                      \
               : "r"(a), "r"(b), "r"(keep), "n"(kUpperOfFactor))
#define LOCKSTEP_WGMMA_FP8(left, right)                                                       \
  if constexpr (kTiles == 16) {                                                               \
    LOCKSTEP_WGMMA_FP8_OF("128", left, right, LOCKSTEP_NAMES_128, "%64", "%65", "%66", "%67", \
                          LOCKSTEP_SUMS_64(0), LOCKSTEP_SUMS_64(8));                          \
  } else {                                                                                    \
    LOCKSTEP_WGMMA_FP8_OF("192", left, right, LOCKSTEP_NAMES_192, "%96", "%97", "%98", "%99", \
                          LOCKSTEP_SUMS_64(0), LOCKSTEP_SUMS_64(8), LOCKSTEP_SUMS_64(16));    \
  }

// d[m, n] = FDA32(a[m, 0..31], b[n, 0..31], keep ? d[m, n] : +0), for 128 or 192 columns. Factors
// are given by their lower words; 16 bytes more of address are 1 more. Warp w of the warpgroup
// holds rows 16w to 16w + 15; d[x] is the fragment (mma.cuh) of the columns 8x to 8x + 7.
template <class A, class B, int kTiles>
__device__ __forceinline__ void wgmma_fp8(float (&d)[kTiles][4], std::uint32_t a, std::uint32_t b,
                                          int keep) {
  static_assert(kTiles == 16 || kTiles == 24, "128 columns or 192");
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
#undef LOCKSTEP_WGMMA_FP8_OF
#undef LOCKSTEP_NAMES_192
#undef LOCKSTEP_NAMES_128
#undef LOCKSTEP_SUMS_64
#undef LOCKSTEP_SUMS_8

}  // namespace lockstep
