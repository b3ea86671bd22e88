// Functions of the contract (arithmetic.md 0.2) in forms that are cheap on a GPU and have the same
// bits: sigmoid, silu and dsilu without branches, for all floats but NaN, and expn where it neither
// clamps nor gives zero. __fdiv_rn branches for quotients that overflow or underflow, which keeps
// the compiler from interleaving neighbours; the quotients of a sigmoid lie in [0, 1] and need no
// branch.
#pragma once

#include "kernels/cuda/common/row_vec4.cuh"

namespace lockstep {

// exp(-|x|), with the bits of exp. It is scaled by 2^(n + 64), which never underflows, then by
// 2^-64, which rounds as the last factor of exp does. NaN gives exp(-104).
__device__ __forceinline__ float exp_of_minus(float x) {
  constexpr float kShifted = kRound + 64.0f;  // Exact: the same parity and the same binade.
  const float xc = max(-fabsf(x), -104.0f);
  const float t = fma(xc, kLog2E, kShifted);
  const float nf = sub(t, kShifted);
  const float r = fma(nf, kLn2Low, fma(nf, -kLn2High, xc));
  return mul(from_bits(bits(exp_poly(r)) + (bits(t) << 23)), 0x1p-64f);
}

// div(a, b) for b = add(1, e) and a = 1 or a = e in [0, 1]. By trial of all e >= 2^-26, one step of
// correction rounds as the division does if the reciprocal of b is the nearest; if it is 1 ulp off,
// 147 quotients differ. The reciprocals of sm_90 are off for one b in eight, but for none of these:
// cuda_gate_test compares all sigmoids with the contract's.
__device__ __forceinline__ float unit_quotient(float a, float b) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
  const float q = mul(a, r);
  return fma(fma(-b, q, a), r, q);
}

// sigmoid(x). NaN gives some number, so that a caller must multiply the result by x.
__device__ __forceinline__ float gate_of(float x) {
  const float e = exp_of_minus(x);
  return unit_quotient(x >= 0.0f ? 1.0f : e, add(1.0f, e));
}
// silu(x) and dsilu(x).
__device__ __forceinline__ float gated(float x) { return mul(x, gate_of(x)); }
__device__ __forceinline__ float gated_slope(float x) {
  const float s = gate_of(x);
  return mul(s, fma(x, sub(1.0f, s), 1.0f));
}

// Approximates silu(x) within some ulps, more of them the further x lies below 0.
__device__ __forceinline__ float nearly_gated(float x) {
  float e;
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(mul(x, -kLog2E)));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(add(1.0f, e)));
  return mul(x, r);
}
// st(silu(x)) of four values, valid if `sure`.
struct Gates {
  Vec4 stored;
  bool sure;
};
// Not sure if an x is below -6, or an approximation within 4 ulps of the middle between two bf16.
// By trial of all floats, 4 ulps are too few from -6.06 down.
__device__ __forceinline__ Gates near_gates(const float (&x)[4]) {
  constexpr std::uint32_t kDoubt = 4;
  float y[4];
  bool sure = true;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    y[e] = nearly_gated(x[e]);
    // The 16 bits that are rounded away, in the upper half of a word.
    const std::uint32_t beyond = (bits(y[e]) << 16) + ((0x8000u + kDoubt) << 16);
    sure = sure && x[e] >= -6.0f && beyond > 2 * kDoubt << 16;
  }
  return {vec4(y), sure};
}
__device__ __forceinline__ Vec4 exact_gates(const float (&x)[4]) {
  float y[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) y[e] = gated(x[e]);
  return vec4(y);
}

// As near_gates, for any number of gates with a single test of whether all are sure. It keeps the
// extremes of the tested values, by three or by two halves of a word per instruction. Also not sure
// if an x or a stored value is -0, so that x may lack an add(x, +0).
class NearGates {
 public:
  __device__ __forceinline__ std::uint32_t pair(float x0, float x1) {
    float y[2];
    std::int32_t power[2];
    const float x[2] = {x0, x1};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float m = mul(x[i], -kLog2E);
      power[i] = static_cast<std::int32_t>(bits(m));
      float e;
      float r;
      asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(m));
      asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(add(1.0f, e)));
      y[i] = mul(x[i], r);
    }
    highest_power_ = __vimax3_s32(highest_power_, power[0], power[1]);
    // The 16 bits that are rounded away from each.
    const std::uint32_t away = __byte_perm(bits(y[0]), bits(y[1]), 0x5410);
    least_beyond_ = __viaddmin_u16x2(away, (0x8000u + kDoubt) * 0x10001u, least_beyond_);
    return stored_pair(y[0], y[1]);
  }
  // Adds two stored pairs to the test.
  __device__ __forceinline__ void take(std::uint32_t a, std::uint32_t b) {
    least_stored_ = __vimin3_s16x2(least_stored_, a, b);
  }
  __device__ __forceinline__ bool sure() const {
    const bool far = (least_beyond_ & 0xffffu) > 2 * kDoubt && least_beyond_ >> 16 > 2 * kDoubt;
    const bool signs = (least_stored_ & 0xffffu) != 0x8000u && least_stored_ >> 16 != 0x8000u;
    return highest_power_ <= kHighest && far && signs;
  }

 private:
  static constexpr std::uint32_t kDoubt = 4;
  static constexpr std::int32_t kHighest =
      0x410a7fac;  // The bits of mul(-6, -log2 e); NaN has more.
  std::int32_t highest_power_ = static_cast<std::int32_t>(0x80000000u);
  std::uint32_t least_beyond_ = 0xffffffffu;
  std::uint32_t least_stored_ = 0x7fff7fffu;
};

// expn(x) for -87 <= x <= 0.
__device__ __forceinline__ float expn_in_range(float x) {
  const float t = fma(x, kLog2E, kRound);
  return from_bits(bits(exp_poly(exp_remainder(x, t))) + (bits(t) << 23));
}

}  // namespace lockstep
