// Arithmetic in which each stored value moves by one unit in the last place of a format: double for
// bf16, beside which all that is not stored is exact, and fp32 for fp32.
#pragma once

#include "oracle/arithmetic/primitives.h"

namespace lockstep::oracle {

// The unit of a number with so many bits behind its first one; 0 for 0.
inline double unit_in_the_last_place(double x, int bits) {
  const std::uint64_t power = std::bit_cast<std::uint64_t>(x) & 0x7ff0'0000'0000'0000u;
  return std::ldexp(std::bit_cast<double>(power), -bits);
}

// The highest bit of a linear congruence decides whether a value moves up or down.
struct Chance {
  std::uint64_t state = 1;
  int bits = 23;  // The other format's.
};

// A result shows how far roundings of the other format can move it: twice as far as the largest of
// them at each place.
struct Nudged {
  using Real = double;
  static constexpr bool kFp8 = false, kTensorCores = false;
  static constexpr int kKvBlock = 32;
  static constexpr int kBitsOfFp32 = 23, kBitsOfBf16 = 7;
  // Each pass sets it first: `st` is static, as that of the other numerics, and can ask nothing
  // else.
  static inline thread_local Chance chance;
  static double st(double x) { return nudged(x, chance.bits); }
  static double kept(double x) { return nudged(x, kBitsOfFp32); }

  static double nudged(double x, int bits) {
    chance.state = chance.state * 6364136223846793005u + 1442695040888963407u;
    const double unit = unit_in_the_last_place(x, bits);
    return (chance.state >> 63) != 0 ? x + unit : x - unit;
  }
};

// In fp32 what is not stored is rounded as coarsely as what is: the partial sums, quotients and
// exponentials of an op. A chain of equal terms is rounded the same way at each of them, so that
// its errors add up and no bound by chance holds: here they arise as they do in an engine.
struct NudgedFp32 {
  using Real = float;
  static constexpr bool kFp8 = false, kTensorCores = false;
  static constexpr int kKvBlock = 32;
  static float st(float x) { return static_cast<float>(Nudged::nudged(x, Nudged::kBitsOfFp32)); }
  static float kept(float x) { return st(x); }
};

}  // namespace lockstep::oracle
