// Functions of the contract in forms that are cheap on a GPU, with the same bits: sigmoid, silu and
// dsilu with nothing that branches, for every float that is a number, and expn where it neither
// clamps nor vanishes. The division of
// __fdiv_rn has a path of its own for quotients that overflow or underflow, and its jump keeps the
// compiler from interleaving neighbours; the quotients of a sigmoid lie in [0, 1] and need none.
#pragma once

#include "kernels/cuda/common/row_vec4.cuh"

namespace lockstep {

// exp(-|x|), with the bits of exp. 2^n is applied as 2^(n + 64), which never underflows, and as
// 2^-64, which rounds as the last factor of exp does. Of NaN: exp(-104).
__device__ __forceinline__ float exp_of_minus(float x) {
  constexpr float kShifted = kRound + 64.0f;  // Exact: the same parity and the same binade.
  const float xc = max(-fabsf(x), -104.0f);
  const float t = fma(xc, kLog2E, kShifted);
  const float nf = sub(t, kShifted);
  const float r = fma(nf, kLn2Low, fma(nf, -kLn2High, xc));
  return mul(from_bits(bits(exp_poly(r)) + (bits(t) << 23)), 0x1p-64f);
}

// div(a, b) for b = add(1, e) and a = 1 or a = e in [0, 1]. With the nearest reciprocal of every b
// one step of correction rounds as the division does, by trial of all e >= 2^-26; with one that is
// 1 ulp off but for 147 quotients. Those of sm_90 are off for one b in eight, never for these:
// cuda_gate_test compares all sigmoids with the contract's.
__device__ __forceinline__ float unit_quotient(float a, float b) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
  const float q = mul(a, r);
  return fma(fma(-b, q, a), r, q);
}

// For NaN it gives some number, so that only what multiplies it by its argument may use it.
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

// Near gated(x): by some ulps, more of them the further below 0 x is.
__device__ __forceinline__ float nearly_gated(float x) {
  float e;
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(mul(x, -kLog2E)));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(add(1.0f, e)));
  return mul(x, r);
}
// st(gated(x)) of four, if `sure`.
struct Gates {
  Vec4 stored;
  bool sure;
};
// Not sure below -6, nor where what is near lies within 4 ulps of the middle between two stored
// numbers: by trial of all floats, 4 are too few from -6.06 down.
__device__ __forceinline__ Gates near_gates(const float (&x)[4]) {
  constexpr std::uint32_t kDoubt = 4;
  float y[4];
  bool sure = true;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    y[e] = nearly_gated(x[e]);
    // The 16 bits that are rounded away, as the upper ones of a word.
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

// As near_gates, for any number of gates that are asked at once whether all are sure: by the least
// and the most of what they would be asked for, three at a time or two halves of a word at a time.
// Not sure either of -0, of x or of what is stored, so that x may lack an add(x, +0).
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
    // The 16 bits that are rounded away of both.
    const std::uint32_t away = __byte_perm(bits(y[0]), bits(y[1]), 0x5410);
    least_beyond_ = __viaddmin_u16x2(away, (0x8000u + kDoubt) * 0x10001u, least_beyond_);
    return stored_pair(y[0], y[1]);
  }
  // Two stored pairs.
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
