// Families of random factors for DOT8, each at a border of the model or of a fast form of it.
// Magnitudes change by row and by run of 128: with plain data the order of the sums hardly shows.
#pragma once

#include <cstdint>

#include "kernels/core/fda_families.h"
#include "kernels/core/fp8.h"

namespace lockstep {

struct Fp8Family {
  const char* name;
  int low, high;  // Exponent fields of the codes, in sixteenths of what the type has.
  int spread;     // Fields move by up to so many sixteenths, by row and by run.
  int zeros;      // One in so many is a zero; 0: none.
  int specials;   // One in so many is an infinity or NaN; 0: none.
  bool cancels;   // Every second product undoes the one before, nearly.
};
constexpr Fp8Family kFp8Families[] = {
    {"near one", 7, 9, 0, 0, 0, false},
    {"one exponent", 8, 8, 0, 0, 0, false},
    {"near one, spread", 5, 7, 5, 0, 0, false},
    {"far apart, spread", 2, 11, 4, 9, 0, false},
    {"any number", 0, 15, 0, 30, 0, false},
    {"cancelling", 7, 9, 0, 0, 0, true},
    {"cancelling, spread", 4, 7, 6, 20, 0, true},
    {"zeros, spread", 4, 9, 5, 2, 0, false},
    {"mostly zeros", 0, 15, 0, 1, 0, false},
    {"subnormal codes", 0, 0, 0, 4, 0, false},
    {"subnormal codes and large ones", 0, 15, 8, 3, 0, true},
    {"the largest codes", 14, 15, 0, 0, 0, false},
    {"infinities and NaN", 3, 9, 4, 9, 200, false},
};

// Draws the codes of one factor. `seed` decides how far each row and run is moved.
template <class F>
F drawn_code(Drawn& draw, const Fp8Family& f, std::uint64_t seed, std::int64_t row,
             std::int64_t place) {
  constexpr int kFields = 1 << (7 - F::kFraction);
  const auto sign = static_cast<std::uint32_t>(draw.below(2) << 7);
  if (f.zeros != 0 && draw.below(f.zeros == 1 ? 8 : f.zeros) < (f.zeros == 1 ? 7 : 1))
    return F{static_cast<std::uint8_t>(sign)};
  if (f.specials != 0 && draw.below(f.specials) == 0)
    return F{static_cast<std::uint8_t>(
        sign | (F::kTop + 1u + static_cast<std::uint32_t>(draw.below(0x7f - F::kTop))))};
  const auto moved = static_cast<std::uint64_t>(row * 1021 + place / kFp8Run);
  const auto by = f.spread == 0
                      ? std::int64_t{0}
                      : static_cast<std::int64_t>(mix64(seed ^ (moved * 0x9E3779B97F4A7C15u)) %
                                                  static_cast<std::uint64_t>(2 * f.spread + 1)) -
                            f.spread;
  const std::int64_t sixteenth = f.low + draw.below(f.high - f.low + 1) + by;
  const std::int64_t field = sixteenth * kFields / 16 + draw.below(kFields / 16);
  const std::int64_t inside = field < 0 ? 0 : field > kFields - 1 ? kFields - 1 : field;
  const auto code = static_cast<std::uint32_t>((inside << F::kFraction) +
                                               draw.below(std::int64_t{1} << F::kFraction));
  return F{static_cast<std::uint8_t>(sign | (code > F::kTop ? F::kTop : code))};
}
// A row of k codes. In a family that cancels, every second place undoes the one before: in the
// left factor always, in the right one mostly.
template <class F>
void draw_code_row(Drawn& draw, const Fp8Family& f, std::uint64_t seed, std::int64_t row,
                   std::int64_t k, bool right, F* to) {
  for (std::int64_t e = 0; e < k; ++e) {
    const bool undoes = f.cancels && e % 2 != 0 && (!right || draw.below(3) != 0);
    to[e] = drawn_code<F>(draw, f, seed, row, e);
    if (undoes) to[e].bits = static_cast<std::uint8_t>(to[e - 1].bits ^ (right ? 0u : 0x80u));
  }
}

}  // namespace lockstep
