// Cuts one allocation into atoms: two bytes are in one atom if every box that the run used has both
// or neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "harness/access/boxes.h"

namespace lockstep {

class Atoms {
 public:
  Atoms(const std::byte* base_, std::int64_t bytes_) : base(base_), bytes(bytes_) {}
  const std::byte* base;
  std::int64_t bytes;

  // Boxes count their bytes from `base`.
  void add(const Box& box) { boxes_[key(box)]; }
  // Called after all boxes were added. Numbers the atoms from `first`, and returns the next free
  // number.
  int cut(int first);
  const std::vector<int>& of(const Box& box) const { return boxes_.at(key(box)); }

 private:
  // base, rows, width, pitch
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  static Key key(const Box& b) { return {b.base, b.rows, b.width, b.pitch}; }
  std::map<Key, std::vector<int>> boxes_;
};

}  // namespace lockstep
