// Double in which each stored value moves by one unit in the last place of another format.
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

 private:
  static double nudged(double x, int bits) {
    chance.state = chance.state * 6364136223846793005u + 1442695040888963407u;
    const double unit = unit_in_the_last_place(x, bits);
    return (chance.state >> 63) != 0 ? x + unit : x - unit;
  }
};

}  // namespace lockstep::oracle
