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
  // These two are for experts on several ranks. A rank's buffer for its own experts has
  // `owner_rows` rows, from all ranks; `places` is the most rows that one rank sends to another.
  std::int64_t owner_rows, places;
};

}  // namespace lockstep
