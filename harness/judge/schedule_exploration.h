// Runs the schedules of a case by tags alone, and runs with arithmetic those on which the host
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
  // `program` is what the first unobserved run put on its streams.
  ScheduleExploration(const JudgedCase& one, const ReferenceResults& results,
                      const Program& program);

  std::string bound() const;  // States how many schedules run, and what they must find.
  std::int64_t schedules() const { return schedules_; }

  // Returns the next result of the search: a finding, or the outcome of a run that tried to confirm
  // a difference. It has counters only if that run threw. Returns nothing when the search is over.
  std::optional<RunOutcome> next();
  // The schedule that was run last, if any.
  std::optional<std::int64_t> seed() const { return seed_; }

 private:
  RunOutcome confirm(const FoundSchedule& difference) const;

  const JudgedCase& one_;
  const ReferenceResults& results_;
  const Program& program_;
  ExploreOptions options_;  // For the remaining schedules.
  const std::int64_t schedules_;
  int confirmed_ = 0;
  bool over_ = false;
  std::optional<std::int64_t> seed_;
};

}  // namespace lockstep
