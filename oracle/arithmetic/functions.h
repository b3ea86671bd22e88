// The transcendental functions of arithmetic.md 0.2. In double they are the library's.
#pragma once

#include "oracle/arithmetic/primitives.h"

namespace lockstep::oracle {

inline constexpr float kLn2High = 0x1.62e43p-1f, kLn2Low = 0x1.05c618p-29f;

template <class Real>
LOCKSTEP_ORACLE_INLINE Real rsqrt(Real x) {
  return div(Real(1), sqrt(x));
}

// p = c0, then p = fma(p, x, c) for the further coefficients.
template <class... Coefficients>
LOCKSTEP_ORACLE_INLINE float horner(float x, float p, Coefficients... further) {
  ((p = fma(p, x, further)), ...);
  return p;
}

LOCKSTEP_ORACLE_INLINE float exp_poly(float r) {
  const float p =
      horner(r, 0x1.6d10fcp-10f, 0x1.120b62p-7f, 0x1.55551ap-5f, 0x1.5554dep-3f, 0x1p-1f);
  return fma(fma(p, r, 1.0f), r, 1.0f);
}

struct Reduced {
  float t, r;
};
LOCKSTEP_ORACLE_INLINE Reduced exp_reduce(float x) {
  const float t = fma(x, 0x1.715476p+0f, 12582912.0f);
  const float nf = sub(t, 12582912.0f);
  return {t, fma(nf, kLn2Low, fma(nf, -kLn2High, x))};
}

LOCKSTEP_ORACLE_INLINE float power_of_two(std::int32_t n) {
  return from_bits(static_cast<std::uint32_t>(n + 127) << 23);
}

LOCKSTEP_ORACLE_INLINE float exp(float x) {
  float xc = x < -104.0f ? -104.0f : x;
  xc = xc > 89.0f ? 89.0f : xc;
  const Reduced s = exp_reduce(xc);
  const std::int32_t n = static_cast<std::int32_t>(bits(s.t) - 0x4b400000u);
  const std::int32_t n1 = n >> 1;
  const float y = mul(mul(exp_poly(s.r), power_of_two(n1)), power_of_two(n - n1));
  return x == x ? y : from_bits(0x7fffffffu);
}

// For x <= 0, or slightly above. Below -87 it is +0.
LOCKSTEP_ORACLE_INLINE float expn(float x) {
  const float xc = x > -87.0f ? x : -87.0f;
  const Reduced s = exp_reduce(xc);
  float y = from_bits(bits(exp_poly(s.r)) + (bits(s.t) << 23));
  y = x >= -87.0f ? y : 0.0f;
  return x == x ? y : from_bits(0x7fffffffu);
}

LOCKSTEP_ORACLE_INLINE float log(float x) {
  const bool subnormal = x < 0x1p-126f;
  const float xs = subnormal ? mul(x, 0x1p23f) : x;
  const std::int32_t e = static_cast<std::int32_t>(bits(xs) - 0x3f2aaaabu) >> 23;
  const float f = sub(from_bits(bits(xs) - (static_cast<std::uint32_t>(e) << 23)), 1.0f);
  float ef = static_cast<float>(e);
  ef = subnormal ? sub(ef, 23.0f) : ef;
  const float p =
      horner(f, 0x1.d01a22p-4f, -0x1.fcd036p-4f, 0x1.bf1afp-4f, -0x1.f75896p-4f, 0x1.24b28cp-3f,
             -0x1.557832p-3f, 0x1.999954p-3f, -0x1.ffffb6p-3f, 0x1.555556p-2f);
  float r = fma(mul(f, f), fma(f, p, -0.5f), f);
  r = fma(ef, kLn2High, fma(ef, -kLn2Low, r));
  r = x == from_bits(0x7f800000u) ? x : r;
  r = x == 0.0f ? from_bits(0xff800000u) : r;
  return x >= 0.0f ? r : from_bits(0x7fffffffu);
}

// log(1 + u) for u in [0, 1].
LOCKSTEP_ORACLE_INLINE float log1p01(float u) {
  const bool big = u > 0x1.a8279ap-2f;
  const float f = big ? fma(u, 0.5f, -0.5f) : u;
  const float p =
      horner(f, 0x1.1d8f6p-4f, -0x1.d636dp-4f, 0x1.dea2cp-4f, -0x1.fcf4a8p-4f, 0x1.23d214p-3f,
             -0x1.555b4ap-3f, 0x1.999d5ap-3f, -0x1.fffffcp-3f, 0x1.555554p-2f);
  const float r = fma(mul(f, f), fma(f, p, -0.5f), f);
  return big ? add(r, kLn2High) : r;
}

// Legal for |x| <= 1e5.
inline void sincos(float x, float& sine, float& cosine) {
  const float t = fma(x, 0x1.45f306p-1f, 12582912.0f);
  const std::uint32_t q = bits(t);
  const float j = sub(t, 12582912.0f);
  const float r = fma(j, 0x1.ee59e2p-50f, fma(j, 0x1.777a5cp-25f, fma(j, -0x1.921fb6p+0f, x)));
  const float z = mul(r, r);
  const float s = fma(mul(r, z), horner(z, -0x1.9ac9bp-13f, 0x1.110c28p-7f, -0x1.555552p-3f), r);
  const float c = fma(mul(z, z), horner(z, 0x1.9bd89cp-16f, -0x1.6c12d2p-10f, 0x1.555554p-5f),
                      fma(z, -0.5f, 1.0f));
  const float a = (q & 1) ? c : s, b = (q & 1) ? s : c;
  sine = (q & 2) ? neg(a) : a;
  cosine = ((q + 1) & 2) ? neg(b) : b;
}

inline float erf(float x) {
  const float a = abs(x), z = mul(a, a), ac = min(a, 4.0f);
  const float p = horner(z, 0x1.5fc786p-14f, -0x1.ab2446p-11f, 0x1.54e1f4p-8f, -0x1.b81148p-6f,
                         0x1.ce2e2ap-4f, -0x1.812744p-2f, 0x1.06eba8p-3f);
  const float q =
      horner(ac, -0x1.b9314p-20f, 0x1.835e5p-15f, -0x1.3963c6p-11f, 0x1.382f88p-8f, -0x1.b10bbap-6f,
             0x1.c2f26ep-4f, 0x1.437d32p-1f, 0x1.21574p+0f, -0x1.5001dep-12f);
  float y = a < 0x1.d70a3ep-1f ? fma(p, a, a) : sub(1.0f, expn(neg(q)));
  y = x == x ? y : from_bits(0x7fffffffu);
  return from_bits(bits(y) | (bits(x) & 0x80000000u));
}

inline double exp(double x) { return std::exp(x); }
inline double expn(double x) { return std::exp(x); }
inline double log(double x) { return std::log(x); }
inline double log1p01(double u) { return std::log1p(u); }
inline void sincos(double x, double& sine, double& cosine) {
  sine = std::sin(x);
  cosine = std::cos(x);
}

template <class Real>
LOCKSTEP_ORACLE_INLINE Real softplus(Real x) {
  return add(max(x, Real(0)), log1p01(expn(neg(abs(x)))));
}
template <class Real>
LOCKSTEP_ORACLE_INLINE Real sigmoid(Real x) {
  const Real e = exp(neg(abs(x)));
  return div(x >= 0 ? Real(1) : e, add(Real(1), e));
}
template <class Real>
LOCKSTEP_ORACLE_INLINE Real silu(Real x) {
  return mul(x, sigmoid(x));
}
template <class Real>
LOCKSTEP_ORACLE_INLINE Real dsilu(Real x) {
  const Real s = sigmoid(x);
  return mul(s, fma(x, sub(Real(1), s), Real(1)));
}

}  // namespace lockstep::oracle
