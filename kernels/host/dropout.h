// Dropout of a row: one Philox block serves four channels.
#pragma once

#include <algorithm>

#include "kernels/core/fault.h"
#include "kernels/ops/dropout.h"

namespace lockstep {

// The row's channels, where the generator's counter holds (`site` and channel, `position`,
// `document`, `step`).
inline void drop_channels(Dropout d, StepState s, std::int32_t document, std::int32_t position,
                          std::int64_t n, float* row) {
  const float scale = faulty("dropout-forgets-scale", d.scale, 1.0f);
  const bool keeps_high = faulty("dropout-keeps-below-threshold", true, false);
  for (std::int64_t e = 0; e < n; e += 4) {
    const Philox r =
        philox(s.seed_low, s.seed_high, static_cast<std::uint32_t>(e >> 2) | (d.site << 20),
               static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(document), s.step);
    for (std::int64_t c = 0; c < std::min<std::int64_t>(4, n - e); ++c) {
      const bool keep = (r.word[c] >= d.threshold) == keeps_high;
      row[e + c] = keep ? mul(row[e + c], scale) : 0.0f;
    }
  }
}

// row[e] = drop(row[e]) for the row of document number `document` at `position`.
inline void drop_row(Dropout d, StepState s, std::int32_t document, std::int32_t position,
                     std::int64_t n, float* row) {
  if (!d.active) return;
  s.step = faulty("dropout-ignores-step", s.step, 0);
  drop_channels(d, s, document, faulty("dropout-ignores-position", position, 0), n, row);
}

}  // namespace lockstep
