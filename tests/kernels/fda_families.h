// Families of dots, each at a border of the FDA16 model or of a fast form, and the comparison of a form with the model.
#pragma once

#include <gtest/gtest.h>

#include <array>

#include "kernels/fda16.h"
#include "kernels/host/fda16.h"
#include "tests/kernels/plain.h"

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
  explicit Drawn(std::uint64_t seed) : pick_(seed) {}
  float operand(const Family& f) {
    if (f.zeros != 0 && pick_.below(f.zeros == 1 ? 8 : f.zeros) < (f.zeros == 1 ? 7 : 1)) {
      return pick_.below(2) != 0 ? 0.0f : -0.0f;
    }
    if (f.specials != 0 && pick_.below(f.specials) == 0) return bf16_of(pick_.below(2) != 0, 255, pick_.below(3) / 2);
    const std::int64_t fraction = pick_.below(4) == 0 ? 127 * pick_.below(2) : pick_.below(128);
    return bf16_of(pick_.below(2) != 0, f.low + pick_.below(f.high - f.low + 1), fraction);
  }
  float start(const Family& f) {
    if (f.c_high == 0 || pick_.below(10) == 0) return pick_.below(2) != 0 ? 0.0f : -0.0f;
    const auto field = static_cast<std::uint32_t>(f.c_low + pick_.below(f.c_high - f.c_low + 1));
    const auto fraction = static_cast<std::uint32_t>(pick_.below(3) == 0 ? pick_.below(4) : pick_.below(1 << 23));
    return from_bits((static_cast<std::uint32_t>(pick_.below(2)) << 31) | (field << 23) | fraction);
  }
  std::int64_t below(std::int64_t n) { return pick_.below(n); }

 private:
  plain::Picker pick_;
};

// 16 columns of up to 48 places against one row, over any range of places.
inline void compare(const FdaForm& form, const Family& f, std::uint64_t seed, std::int64_t& dots) {
  Drawn draw(seed * 1000003 + static_cast<std::uint64_t>(&f - kFamilies));
  const std::int64_t k = 1 + draw.below(48);
  std::array<float, 48> a;
  std::array<float, 48 * 16> b;
  std::array<float, 16> start, sums;
  for (std::int64_t e = 0; e < k; ++e) {
    const auto at = static_cast<std::size_t>(e);
    const bool undo = f.cancels && e % 2 != 0;
    a[at] = undo ? neg(a[at - 1]) : draw.operand(f);
    for (std::size_t j = 0; j < 16; ++j) {
      b[at * 16 + j] = undo && draw.below(3) != 0 ? b[(at - 1) * 16 + j] : draw.operand(f);
    }
  }
  for (float& c : start) c = draw.start(f);
  FdaPanels panel;
  panel.pack(k, 16, b.data(), 16, 1);
  std::array<float, 48> values;
  std::array<std::uint32_t, 48> exponents;
  pack_fda_row(0, k, a.data(), 1, values.data(), exponents.data());
  const std::int64_t begin = draw.below(4) == 0 ? draw.below(k) : 0;
  sums = start;
  form.kernel(begin, k, values.data(), exponents.data(), panel.values(0), panel.exponents(0), sums.data());
  for (std::size_t j = 0; j < 16; ++j) {
    const float want = fda_chain(kSm90, begin, k, a.data(), 1, b.data() + j, 16, start[j]);
    ASSERT_EQ(bits(sums[j]), bits(want)) << form.name << ", " << f.name << ", seed " << seed << ", lane " << j;
  }
  dots += 16;
}

inline void expect_equal_to_the_scalar_model(const FdaForm& form, std::int64_t wanted) {
  std::int64_t dots = 0;
  for (std::uint64_t seed = 0; dots < wanted; ++seed) {
    for (const Family& f : kFamilies) {
      compare(form, f, seed, dots);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace lockstep
