// Dropout of a row: one Philox block serves four channels.
#pragma once

#include <algorithm>

#include "kernels/core/fault.h"
#include "kernels/ops/dropout.h"

namespace lockstep {

// The planted faults of dropout, looked up once an op.
struct DropoutFaults {
  bool ignores_position = fault("dropout-ignores-position");
  bool ignores_step = fault("dropout-ignores-step");
  bool keeps_below_threshold = fault("dropout-keeps-below-threshold");
  bool forgets_scale = fault("dropout-forgets-scale");
};

// row[e] = drop(row[e]) for the row of document number `document` at `position`.
inline void drop_row(Dropout d, StepState s, const DropoutFaults& faults, std::int32_t document, std::int32_t position,
                     std::int64_t n, float* row) {
  if (!d.active) return;
  if (faults.ignores_position) position = 0;
  if (faults.ignores_step) s.step = 0;
  if (faults.forgets_scale) d.scale = 1.0f;
  for (std::int64_t e = 0; e < n; e += 4) {
    const Philox r = philox(s.seed_low, s.seed_high, static_cast<std::uint32_t>(e >> 2) | (d.site << 20),
                            static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(document), s.step);
    for (std::int64_t c = 0; c < std::min<std::int64_t>(4, n - e); ++c) {
      const bool keep = (r.word[c] >= d.threshold) != faults.keeps_below_threshold;
      row[e + c] = keep ? mul(row[e + c], d.scale) : 0.0f;
    }
  }
}

}  // namespace lockstep
