// The arithmetic contract (version 1): primitives, functions, random bits and stores that have the
// same bits on x86-64 and on NVIDIA GPUs. No bare `*`, `+`, `/` on floats outside this file: every
// rounding is named. Host code that includes this is compiled with -ffp-contract=off, device code
// with --fmad=false.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#if defined(__FAST_MATH__)
#error "The arithmetic contract excludes -ffast-math."
#endif

#if defined(__CUDACC__)
#define LOCKSTEP_HD __host__ __device__ __forceinline__
#else
#define LOCKSTEP_HD inline __attribute__((always_inline))
#endif

namespace lockstep {

inline constexpr int kContractVersion = 1;

LOCKSTEP_HD std::uint32_t bits(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return std::bit_cast<std::uint32_t>(x);
#endif
}
LOCKSTEP_HD float from_bits(std::uint32_t u) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(u);
#else
  return std::bit_cast<float>(u);
#endif
}

// ---- Primitives: IEEE binary32, round to nearest even, subnormals kept --------------------------
#ifdef __CUDA_ARCH__
LOCKSTEP_HD float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
LOCKSTEP_HD float add(float a, float b) { return __fadd_rn(a, b); }
LOCKSTEP_HD float sub(float a, float b) { return __fsub_rn(a, b); }
LOCKSTEP_HD float mul(float a, float b) { return __fmul_rn(a, b); }
LOCKSTEP_HD float div(float a, float b) { return __fdiv_rn(a, b); }
LOCKSTEP_HD float sqrt(float a) { return __fsqrt_rn(a); }
#else
LOCKSTEP_HD float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
LOCKSTEP_HD float add(float a, float b) { return a + b; }
LOCKSTEP_HD float sub(float a, float b) { return a - b; }
LOCKSTEP_HD float mul(float a, float b) { return a * b; }
LOCKSTEP_HD float div(float a, float b) { return a / b; }
LOCKSTEP_HD float sqrt(float a) { return __builtin_sqrtf(a); }
#endif
LOCKSTEP_HD float neg(float a) { return from_bits(bits(a) ^ 0x80000000u); }
LOCKSTEP_HD float abs(float a) { return from_bits(bits(a) & 0x7fffffffu); }
LOCKSTEP_HD float max(float a, float b) {
  return a > b ? a : b;
}  // Never fmaxf: it differs on NaN.
LOCKSTEP_HD float min(float a, float b) { return a < b ? a : b; }
LOCKSTEP_HD float rsqrt(float a) { return div(1.0f, sqrt(a)); }
LOCKSTEP_HD float quiet_nan() { return from_bits(0x7fffffffu); }
LOCKSTEP_HD float infinity() { return from_bits(0x7f800000u); }

// ---- Functions: arithmetic.md 0.2 ---------------------------------------------------------------
inline constexpr float kLn2High = 0x1.62e43p-1f;
inline constexpr float kLn2Low = 0x1.05c618p-29f;
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kRound =
    12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits.

LOCKSTEP_HD float exp_poly(float r) {
  float p = 0x1.6d10fcp-10f;
  p = fma(p, r, 0x1.120b62p-7f);
  p = fma(p, r, 0x1.55551ap-5f);
  p = fma(p, r, 0x1.5554dep-3f);
  p = fma(p, r, 0x1p-1f);
  return fma(fma(p, r, 1.0f), r, 1.0f);
}
LOCKSTEP_HD float exp_remainder(float x, float t) {
  const float nf = sub(t, kRound);
  return fma(nf, kLn2Low, fma(nf, -kLn2High, x));
}
LOCKSTEP_HD float exp(float x) {
  float xc = x < -104.0f ? -104.0f : x;
  xc = xc > 89.0f ? 89.0f : xc;
  const float t = fma(xc, kLog2E, kRound);
  const std::int32_t n = static_cast<std::int32_t>(bits(t) - 0x4B400000u);
  const std::int32_t n1 = n >> 1;
  const std::int32_t n2 = n - n1;
  const float s1 = from_bits(static_cast<std::uint32_t>(n1 + 127) << 23);
  const float s2 = from_bits(static_cast<std::uint32_t>(n2 + 127) << 23);
  const float y = mul(mul(exp_poly(exp_remainder(xc, t)), s1), s2);
  return x == x ? y : quiet_nan();
}
// exp for x <= 0 (slightly above is legal); results under e^-87 are +0.
LOCKSTEP_HD float expn(float x) {
  const float xc = x > -87.0f ? x : -87.0f;
  const float t = fma(xc, kLog2E, kRound);
  const float y = from_bits(bits(exp_poly(exp_remainder(xc, t))) + (bits(t) << 23));
  const float clamped = x >= -87.0f ? y : 0.0f;
  return x == x ? clamped : quiet_nan();
}
LOCKSTEP_HD float log_poly(float f, float p) { return fma(mul(f, f), fma(f, p, -0.5f), f); }
LOCKSTEP_HD float log(float x) {
  const bool subnormal = x < 0x1p-126f;
  const float xs = subnormal ? mul(x, 0x1p23f) : x;
  const std::int32_t e = static_cast<std::int32_t>(bits(xs) - 0x3f2aaaabu) >> 23;
  const float m = from_bits(bits(xs) - (static_cast<std::uint32_t>(e) << 23));
  float ef = static_cast<float>(e);
  ef = subnormal ? sub(ef, 23.0f) : ef;
  const float f = sub(m, 1.0f);
  float p = 0x1.d01a22p-4f;
  p = fma(p, f, -0x1.fcd036p-4f);
  p = fma(p, f, 0x1.bf1afp-4f);
  p = fma(p, f, -0x1.f75896p-4f);
  p = fma(p, f, 0x1.24b28cp-3f);
  p = fma(p, f, -0x1.557832p-3f);
  p = fma(p, f, 0x1.999954p-3f);
  p = fma(p, f, -0x1.ffffb6p-3f);
  p = fma(p, f, 0x1.555556p-2f);
  float r = fma(ef, kLn2High, fma(ef, -kLn2Low, log_poly(f, p)));
  r = x == infinity() ? x : r;
  r = x == 0.0f ? neg(infinity()) : r;
  return x >= 0.0f ? r : quiet_nan();
}
// log(1 + u) for u in [0, 1], without a division.
LOCKSTEP_HD float log1p01(float u) {
  const bool big = u > 0x1.a8279ap-2f;
  const float f = big ? fma(u, 0.5f, -0.5f) : u;
  float p = 0x1.1d8f6p-4f;
  p = fma(p, f, -0x1.d636dp-4f);
  p = fma(p, f, 0x1.dea2cp-4f);
  p = fma(p, f, -0x1.fcf4a8p-4f);
  p = fma(p, f, 0x1.23d214p-3f);
  p = fma(p, f, -0x1.555b4ap-3f);
  p = fma(p, f, 0x1.999d5ap-3f);
  p = fma(p, f, -0x1.fffffcp-3f);
  p = fma(p, f, 0x1.555554p-2f);
  const float r = log_poly(f, p);
  return big ? add(r, kLn2High) : r;
}
LOCKSTEP_HD float softplus(float x) { return add(max(x, 0.0f), log1p01(expn(neg(abs(x))))); }
LOCKSTEP_HD float sigmoid(float x) {
  const float e = exp(neg(abs(x)));
  return div(x >= 0.0f ? 1.0f : e, add(1.0f, e));
}
LOCKSTEP_HD float silu(float x) { return mul(x, sigmoid(x)); }
LOCKSTEP_HD float dsilu(float x) {
  const float s = sigmoid(x);
  return mul(s, fma(x, sub(1.0f, s), 1.0f));
}
// Legal for |x| <= 1e5.
LOCKSTEP_HD void sincos(float x, float& sn, float& cs) {
  const float t = fma(x, 0x1.45f306p-1f, kRound);
  const std::uint32_t q = bits(t);
  const float j = sub(t, kRound);
  float r = fma(j, -0x1.921fb6p+0f, x);
  r = fma(j, 0x1.777a5cp-25f, r);
  r = fma(j, 0x1.ee59e2p-50f, r);
  const float z = mul(r, r);
  const float s =
      fma(mul(r, z), fma(fma(-0x1.9ac9bp-13f, z, 0x1.110c28p-7f), z, -0x1.555552p-3f), r);
  const float c = fma(mul(z, z), fma(fma(0x1.9bd89cp-16f, z, -0x1.6c12d2p-10f), z, 0x1.555554p-5f),
                      fma(z, -0.5f, 1.0f));
  const float a = (q & 1) ? c : s;
  const float b = (q & 1) ? s : c;
  sn = (q & 2) ? neg(a) : a;
  cs = ((q + 1) & 2) ? neg(b) : b;
}
LOCKSTEP_HD float sin(float x) {
  float s, c;
  sincos(x, s, c);
  return s;
}
LOCKSTEP_HD float cos(float x) {
  float s, c;
  sincos(x, s, c);
  return c;
}

// Used by the fingerprint only, not by any op.
LOCKSTEP_HD float erf(float x) {
  const float a = abs(x);
  const float z = mul(a, a);
  float p = 0x1.5fc786p-14f;
  p = fma(p, z, -0x1.ab2446p-11f);
  p = fma(p, z, 0x1.54e1f4p-8f);
  p = fma(p, z, -0x1.b81148p-6f);
  p = fma(p, z, 0x1.ce2e2ap-4f);
  p = fma(p, z, -0x1.812744p-2f);
  p = fma(p, z, 0x1.06eba8p-3f);
  const float near = fma(p, a, a);
  const float ac = min(a, 4.0f);
  float q = -0x1.b9314p-20f;
  q = fma(q, ac, 0x1.835e5p-15f);
  q = fma(q, ac, -0x1.3963c6p-11f);
  q = fma(q, ac, 0x1.382f88p-8f);
  q = fma(q, ac, -0x1.b10bbap-6f);
  q = fma(q, ac, 0x1.c2f26ep-4f);
  q = fma(q, ac, 0x1.437d32p-1f);
  q = fma(q, ac, 0x1.21574p+0f);
  q = fma(q, ac, -0x1.5001dep-12f);
  const float far = sub(1.0f, expn(neg(q)));
  const float y = x != x ? quiet_nan() : a < 0x1.d70a3ep-1f ? near : far;
  return from_bits(bits(y) | (bits(x) & 0x80000000u));
}

// ---- Storage: arithmetic.md 0 rule 8 ------------------------------------------------------------
struct bf16 {
  std::uint16_t bits;
};
LOCKSTEP_HD std::uint16_t bf16_bits(float x) {
  const std::uint32_t u = bits(x);
  return (u & 0x7fffffffu) > 0x7f800000u
             ? static_cast<std::uint16_t>(0x7fff)
             : static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
LOCKSTEP_HD float load(float x) { return x; }
LOCKSTEP_HD float load(bf16 x) { return from_bits(static_cast<std::uint32_t>(x.bits) << 16); }
// st(x): rounds to the activation type.
template <class T>
LOCKSTEP_HD T st(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return T{bf16_bits(x)};
  }
}

// ---- Random bits: Philox4x32-10, arithmetic.md 0.4 ----------------------------------------------
struct Philox {
  std::uint32_t word[4];
};
LOCKSTEP_HD Philox philox(std::uint32_t k0, std::uint32_t k1, std::uint32_t c0, std::uint32_t c1,
                          std::uint32_t c2, std::uint32_t c3) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = static_cast<std::uint64_t>(0xD2511F53u) * c0;
    const std::uint64_t b = static_cast<std::uint64_t>(0xCD9E8D57u) * c2;
    c0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
    c2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(b);
    c3 = static_cast<std::uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Uniform in [0, 1) with 24 bits.
LOCKSTEP_HD float uniform(std::uint32_t word) {
  return mul(static_cast<float>(word >> 8), 0x1p-24f);
}

// ---- Digest of a tensor set: arithmetic.md 1 ----------------------------------------------------
LOCKSTEP_HD std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace lockstep
