// The roundings of arithmetic.md 0, each with a name. The double overloads serve finite differences
// and fixtures.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace lockstep::oracle {

#define LOCKSTEP_ORACLE_INLINE inline __attribute__((always_inline))

LOCKSTEP_ORACLE_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
LOCKSTEP_ORACLE_INLINE float add(float a, float b) { return a + b; }
LOCKSTEP_ORACLE_INLINE float sub(float a, float b) { return a - b; }
LOCKSTEP_ORACLE_INLINE float mul(float a, float b) { return a * b; }
LOCKSTEP_ORACLE_INLINE float div(float a, float b) { return a / b; }
LOCKSTEP_ORACLE_INLINE float sqrt(float a) { return __builtin_sqrtf(a); }

LOCKSTEP_ORACLE_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
LOCKSTEP_ORACLE_INLINE double add(double a, double b) { return a + b; }
LOCKSTEP_ORACLE_INLINE double sub(double a, double b) { return a - b; }
LOCKSTEP_ORACLE_INLINE double mul(double a, double b) { return a * b; }
LOCKSTEP_ORACLE_INLINE double div(double a, double b) { return a / b; }
LOCKSTEP_ORACLE_INLINE double sqrt(double a) { return __builtin_sqrt(a); }

LOCKSTEP_ORACLE_INLINE std::uint32_t bits(float a) { return std::bit_cast<std::uint32_t>(a); }
LOCKSTEP_ORACLE_INLINE float from_bits(std::uint32_t b) { return std::bit_cast<float>(b); }

LOCKSTEP_ORACLE_INLINE float neg(float a) { return from_bits(bits(a) ^ 0x80000000u); }
LOCKSTEP_ORACLE_INLINE float abs(float a) { return from_bits(bits(a) & 0x7fffffffu); }
LOCKSTEP_ORACLE_INLINE double neg(double a) { return -a; }
LOCKSTEP_ORACLE_INLINE double abs(double a) { return __builtin_fabs(a); }

// Not the library's max and min, which treat -0 and NaN otherwise.
template <class Real>
LOCKSTEP_ORACLE_INLINE Real max(Real a, Real b) {
  return a > b ? a : b;
}
template <class Real>
LOCKSTEP_ORACLE_INLINE Real min(Real a, Real b) {
  return a < b ? a : b;
}

// bf16 store: round to nearest even, NaN to 7fff.
inline std::uint16_t to_bf16(float x) {
  const std::uint32_t u = bits(x), nearest = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>(x == x ? nearest : 0x7fffu);
}

// The rounding of each numerics: `st` of the contract, `kept` for what is stored in fp32 in both,
// and what else depends on the numerics. `Real` is the type of everything that is not stored.
// kFp8: whether the products of linear layers are those of arithmetic.md 5.4.
struct Fp32 {
  using Real = float;
  static constexpr bool kFp8 = false;
  static constexpr bool kTensorCores = false;  // Whether DOT consists of FDA16.
  static constexpr int kKvBlock = 32;
  static LOCKSTEP_ORACLE_INLINE float st(float x) { return x; }
  static LOCKSTEP_ORACLE_INLINE float kept(float x) { return x; }
};
struct Bf16 {
  using Real = float;
  static constexpr bool kFp8 = false;
  static constexpr bool kTensorCores = true;
  static constexpr int kKvBlock = 128;
  static LOCKSTEP_ORACLE_INLINE float st(float x) {
    return from_bits(static_cast<std::uint32_t>(to_bf16(x)) << 16);
  }
  static LOCKSTEP_ORACLE_INLINE float kept(float x) { return x; }
};
struct Fp8 : Bf16 {
  static constexpr bool kFp8 = true;
};
struct Fp64 {
  using Real = double;
  static constexpr bool kFp8 = false;
  static constexpr bool kTensorCores = false;
  static constexpr int kKvBlock = 32;
  static LOCKSTEP_ORACLE_INLINE double st(double x) { return x; }
  static LOCKSTEP_ORACLE_INLINE double kept(double x) { return x; }
};

}  // namespace lockstep::oracle
