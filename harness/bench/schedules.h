// The number of schedules per second that run by tags on one core.
#pragma once

#include <cstdint>
#include <string>

#include "harness/explore/program.h"

namespace lockstep {

// 300 ops on 6 streams that share six buffers: each op is ordered after the one before it on its
// buffer by an event.
Program bench_program();

struct ScheduleRate {
  std::string policy;
  std::int64_t schedules = 0;
  double seconds = 0;
};
// Random schedules, and PCT of depth 3, for `budget` seconds each.
ScheduleRate time_schedules(const Program& program, bool pct, double budget);

}  // namespace lockstep
