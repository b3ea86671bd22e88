// The bytes of one allocation that have no value: fresh ones, and those that an op used as scratch.
#pragma once

#include <map>
#include <optional>

#include "harness/access/touch.h"

namespace lockstep {

// A poison op writes no value.
bool is_poison(const Work& work);

class Undefined {
 public:
  // The reason why a byte has no value: `by` used it as scratch, or it was never written.
  struct Cause {
    std::int64_t at = 0;  // The byte.
    std::optional<Work> by;
  };
  explicit Undefined(std::int64_t bytes) { set(box(0, 1, bytes, bytes), std::nullopt); }

  void set(const Box& box, const std::optional<Work>& by);
  void erase(const Box& box);
  std::optional<Cause> first_in(const Box& box) const;
  bool is_empty() const { return pieces_.empty(); }

 private:
  struct Piece {
    std::int64_t end;
    std::optional<Work> by;
  };
  void erase(std::int64_t begin, std::int64_t end);
  std::map<std::int64_t, Piece> pieces_;  // By their first byte; they do not overlap.
};

}  // namespace lockstep
