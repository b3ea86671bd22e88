#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {

// For an even number of values, the upper median. `values` is not empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lockstep
