// Tells RunOptions::progress how far a run of a case is.
#pragma once

#include <cstdint>
#include <cstdio>

#include "harness/base/stopwatch.h"
#include "harness/case/run_options.h"

namespace lockstep {

class RunProgress {
 public:
  // `run` names the run.
  RunProgress(const RunOptions& options, const char* run, std::int64_t steps)
      : options_(options), run_(run), steps_(steps) {}

  // Before the side ("engine", "oracle") begins with a step, counted from 0.
  void tell(const char* side, std::int64_t step) const {
    if (!options_.progress) return;
    char left[64] = "";
    const double seconds = step == 0 ? 0
                                     : watch_.seconds() / static_cast<double>(step) *
                                           static_cast<double>(steps_ - step);
    if (seconds >= 1) std::snprintf(left, sizeof left, ", about %.0f s left of this run", seconds);
    char text[192];
    std::snprintf(text, sizeof text, "%s, step %lld of %lld: %s%s", run_,
                  static_cast<long long>(step + 1), static_cast<long long>(steps_), side, left);
    options_.progress(text);
  }

 private:
  const RunOptions& options_;
  const char* run_;
  const std::int64_t steps_;
  Stopwatch watch_;
};

}  // namespace lockstep
