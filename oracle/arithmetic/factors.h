// The factors of many dot products, and which links of their chains a call computes.
#pragma once

#include <cstdint>

namespace lockstep::oracle {

// The first link starts from +0, the last ends with add(c, +0).
enum class Chain : std::uint8_t { whole, first, middle, last };

template <class Real>
struct Left {  // Factor a(i, k) = at[i * row + k * term].
  const Real* at;
  std::int64_t row, term;
};
template <class Real>
struct Right {  // Factor b(k, j) = at[k * term + j].
  const Real* at;
  std::int64_t term;
};

// The terms that row i takes: from first + i * first_step up to last + i * last_step, clipped to
// those that exist. Other terms are masked: neither of their factors is read.
struct Terms {
  std::int64_t first = 0, first_step = 0, last = 0, last_step = 0;
};

}  // namespace lockstep::oracle
