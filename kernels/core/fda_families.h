// Families of random dots, each at a border of the FDA16 model or of a fast form of it.
#pragma once

#include <cstdint>

#include "kernels/core/contract.h"

namespace lockstep {

inline float widened(std::uint32_t b) { return load(bf16{static_cast<std::uint16_t>(b)}); }
inline float bf16_of(bool negative, std::int64_t field, std::int64_t fraction) {
  return widened(static_cast<std::uint32_t>((negative ? 0x8000 : 0) | (field << 7) | fraction));
}
struct Family {
  const char* name;
  std::int64_t low, high;      // Exponent fields of the operands.
  int zeros, specials;         // One in so many is a zero, an infinity or NaN; 0: none.
  std::int64_t c_low, c_high;  // Exponent fields of c; 0 and 0: c is +0.
  bool cancels;                // Every second product undoes the one before, nearly.
};
constexpr Family kFamilies[] = {
    {"near one", 120, 130, 0, 0, 118, 136, false},
    {"one exponent", 127, 127, 0, 0, 127, 131, false},
    {"wide", 100, 154, 0, 0, 90, 160, false},
    {"any number", 0, 254, 30, 0, 0, 254, false},
    {"cancelling", 120, 130, 0, 0, 100, 130, true},
    {"cancelling, without c", 110, 140, 0, 0, 0, 0, true},
    {"zeros", 120, 134, 2, 0, 1, 140, false},
    {"mostly zeros", 60, 190, 1, 0, 0, 254, false},
    {"subnormal operands", 0, 1, 8, 0, 0, 3, false},
    {"subnormal times huge", 0, 254, 3, 0, 0, 1, false},
    {"below the smallest exponent", 55, 68, 4, 0, 0, 6, false},
    {"at the low border of the fast forms", 78, 86, 6, 0, 30, 45, false},
    {"at the high border of the fast forms", 170, 182, 6, 0, 220, 232, false},
    {"overflow", 186, 194, 0, 0, 240, 254, false},
    {"infinities and NaN", 100, 150, 6, 40, 90, 160, false},
};

class Drawn {
 public:
  explicit Drawn(std::uint64_t seed) : state_(seed) {}
  float operand(const Family& f) {
    if (f.zeros != 0 && below(f.zeros == 1 ? 8 : f.zeros) < (f.zeros == 1 ? 7 : 1)) {
      return below(2) != 0 ? 0.0f : -0.0f;
    }
    if (f.specials != 0 && below(f.specials) == 0) return bf16_of(below(2) != 0, 255, below(3) / 2);
    const std::int64_t fraction = below(4) == 0 ? 127 * below(2) : below(128);
    return bf16_of(below(2) != 0, f.low + below(f.high - f.low + 1), fraction);
  }
  float start(const Family& f) {
    if (f.c_high == 0 || below(10) == 0) return below(2) != 0 ? 0.0f : -0.0f;
    const auto field = static_cast<std::uint32_t>(f.c_low + below(f.c_high - f.c_low + 1));
    const auto fraction = static_cast<std::uint32_t>(below(3) == 0 ? below(4) : below(1 << 23));
    return from_bits((static_cast<std::uint32_t>(below(2)) << 31) | (field << 23) | fraction);
  }
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(mix64(state_ += 0x9E3779B97F4A7C15u) %
                                     static_cast<std::uint64_t>(n));
  }

 private:
  std::uint64_t state_;
};

}  // namespace lockstep
