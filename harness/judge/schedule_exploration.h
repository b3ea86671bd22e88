// Runs the schedules of a case by tags alone, and with their arithmetic those on which the host
// would see a difference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/explore/explore.h"
#include "harness/judge/judged_case.h"

namespace lockstep {

class ScheduleExploration {
 public:
  // `program`: what the first unobserved run put on its streams.
  ScheduleExploration(const JudgedCase& one, const ReferenceResults& results,
                      const Program& program);

  std::string bound() const;  // How many schedules, and what they are bound to find.
  std::int64_t schedules() const { return schedules_; }

  // What the search found next: a finding, or a run that confirmed a difference or did not.
  // Counters are given only if that run threw. Nothing: the search is over.
  std::optional<RunOutcome> next();
  // The schedule that was confirmed last, if any.
  std::optional<std::int64_t> seed() const { return seed_; }

 private:
  RunOutcome confirm(const FoundSchedule& difference) const;

  const JudgedCase& one_;
  const ReferenceResults& results_;
  const Program& program_;
  ExploreOptions options_;  // Of the schedules that are left.
  const std::int64_t schedules_;
  int confirmed_ = 0;
  bool over_ = false;
  std::optional<std::int64_t> seed_;
};

}  // namespace lockstep
