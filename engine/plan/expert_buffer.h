// The buffer in which an `E` layer collects the rows of its experts.
#pragma once

#include <cstdint>

#include "scenarios/scenario.h"

namespace lockstep {

// Its size follows from the scenario alone. Padded, every expert has `capacity` rows; otherwise the
// buffer has one row for every pair of token and expert that can be kept, and the rows of the
// experts are contiguous.
struct ExpertBuffer {
  explicit ExpertBuffer(const Scenario& scenario);
  std::int64_t rows;
  std::int32_t capacity;  // 0: dropless.
  bool padded;
  // Where experts lie on several ranks: rows of the buffer in which a rank has those of its own
  // experts, from all ranks, and the most rows that one rank sends to another.
  std::int64_t owner_rows, places;
};

}  // namespace lockstep
