// Functions of the contract in forms that are cheap on a GPU, with the same bits: sigmoid, silu and dsilu with nothing
// that branches, for every float that is a number, and expn where it neither clamps nor vanishes. The division of
// __fdiv_rn has a path of its own for quotients that overflow or underflow, and its jump keeps the compiler from
// interleaving neighbours; the quotients of a sigmoid lie in [0, 1] and need none.
#pragma once

#include "kernels/contract.h"

namespace lockstep {

// exp(-|x|), with the bits of exp. 2^n is applied as 2^(n + 64), which never underflows, and as 2^-64, which rounds as
// the last factor of exp does. Of NaN: exp(-104).
__device__ __forceinline__ float exp_of_minus(float x) {
  constexpr float kShifted = kRound + 64.0f;  // Exact: the same parity and the same binade.
  const float xc = max(-fabsf(x), -104.0f);
  const float t = fma(xc, kLog2E, kShifted);
  const float nf = sub(t, kShifted);
  const float r = fma(nf, kLn2Low, fma(nf, -kLn2High, xc));
  return mul(from_bits(bits(exp_poly(r)) + (bits(t) << 23)), 0x1p-64f);
}

// div(a, b) for b = add(1, e) and a = 1 or a = e in [0, 1]. With the nearest reciprocal of every b one step of
// correction rounds as the division does, by trial of all e >= 2^-26; with one that is 1 ulp off but for 147 quotients.
// Those of sm_90 are off for one b in eight, never for these: cuda_gate_test compares all sigmoids with the contract's.
__device__ __forceinline__ float unit_quotient(float a, float b) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
  const float q = mul(a, r);
  return fma(fma(-b, q, a), r, q);
}

// Of NaN: some number, so that only what multiplies it by its argument may use it.
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

// expn(x) for -87 <= x <= 0.
__device__ __forceinline__ float expn_in_range(float x) {
  const float t = fma(x, kLog2E, kRound);
  return from_bits(bits(exp_poly(exp_remainder(x, t))) + (bits(t) << 23));
}

}  // namespace lockstep
