#include "harness/explore/atoms.h"

#include <algorithm>
#include <numeric>

#include "kernels/core/at.h"

namespace lockstep {

// Partition refinement over units: the largest pieces that no box begins or ends inside of.
int Atoms::cut(int first) {
  std::int64_t unit = 0, end = 0;
  for (const auto& [k, atoms] : boxes_) {
    const auto& [base, rows, width, pitch] = k;
    unit = std::gcd(std::gcd(unit, base), std::gcd(width, rows > 1 ? pitch : 0));
    end = std::max(end, Box{base, rows, width, pitch}.end());
  }
  if (boxes_.empty()) return first;
  std::vector<int> label(end / unit, -1);
  const auto for_each_unit = [&label, unit](const Key& k, const auto& visit) {
    const auto& [base, rows, width, pitch] = k;
    for (std::int64_t i = 0; i < rows; ++i) {
      int* at = label.data() + (base + i * pitch) / unit;
      std::for_each(at, at + width / unit, visit);
    }
  };
  int labels = 0;
  std::vector<int> split{-1};  // By label + 1: the one that its part inside of the box gets.
  for (const auto& [k, atoms] : boxes_) {
    std::fill(split.begin(), split.end(), -1);
    for_each_unit(k, [&](int& l) {
      int& to = at(split, l + 1);
      if (to < 0) to = labels++;
      l = to;
    });
    split.resize(static_cast<std::size_t>(labels) + 1);
  }
  std::vector<const Key*> seen(labels);
  for (auto& [k, atoms] : boxes_) {
    for_each_unit(k, [&, list = &atoms, key = &k](int l) {
      if (at(seen, l) == key) return;
      at(seen, l) = key;
      list->push_back(first + l);
    });
  }
  return first + labels;
}

}  // namespace lockstep
