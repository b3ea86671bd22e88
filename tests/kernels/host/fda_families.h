// Every fast form of FDA16 against the scalar model, on families of dots that provoke it.
#pragma once

#include <gtest/gtest.h>

#include <array>

#include "kernels/core/fda16.h"
#include "kernels/core/fda_families.h"
#include "kernels/host/fda16.h"
#include "tests/kernels/ops/plain.h"

namespace lockstep {

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
  form.kernel(begin, k, values.data(), exponents.data(), panel.values(0), panel.exponents(0),
              sums.data());
  for (std::size_t j = 0; j < 16; ++j) {
    const float want = fda_chain(kSm90, begin, k, a.data(), 1, b.data() + j, 16, start[j]);
    ASSERT_EQ(bits(sums[j]), bits(want))
        << form.name << ", " << f.name << ", seed " << seed << ", lane " << j;
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
