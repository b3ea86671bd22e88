// Dropout of a row: one Philox block serves four channels.
#pragma once

#include <algorithm>

#include "kernels/core/fault.h"
#include "kernels/ops/dropout.h"

namespace lockstep {

// Two words of the generator's counter: the site, and the document's number.
inline std::uint32_t site_word(std::uint32_t site) {
  return faulty("dropout-site-in-8-bits", site, site & 255) << 20;
}
inline std::uint32_t document_word(std::int32_t document) {
  const auto number = static_cast<std::uint32_t>(document);
  return faulty("dropout-document-in-8-bits", number, number & 255);
}

// The row's channels, where the generator's counter holds (`site` and channel, `position`,
// `document`, `step`).
inline void drop_channels(Dropout d, StepState s, std::int32_t document, std::int32_t position,
                          std::int64_t n, float* row) {
  const float scale = faulty("dropout-forgets-scale", d.scale, 1.0f);
  const bool keeps_high = faulty("dropout-keeps-below-threshold", true, false);
  const std::uint32_t site = site_word(d.site), number = document_word(document);
  for (std::int64_t e = 0; e < n; e += 4) {
    const Philox r = philox(s.seed_low, s.seed_high, static_cast<std::uint32_t>(e >> 2) | site,
                            static_cast<std::uint32_t>(position), number, s.step);
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
