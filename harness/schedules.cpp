#include "harness/schedules.h"

#include "harness/guard.h"

namespace lockstep {

SimOptions sim_options(const Scenario& scenario, std::int64_t seed) {
  const Scenario::Checker::Schedule& schedule = scenario.checker.schedule;
  SimOptions options;
  options.seed = static_cast<std::uint64_t>(seed);
  options.depth = static_cast<int>(schedule.depth);
  options.policy = schedule.kind == ScheduleKind::program  ? SimOptions::Policy::program
                   : schedule.kind == ScheduleKind::random ? SimOptions::Policy::random
                                                           : SimOptions::Policy::pct;
  return options;
}

std::unique_ptr<Backend> open_backend(const std::string& device, const SimOptions& options) {
  if (device != "cuda") return open_sim(options);  // The host's own arithmetic: guarded at the start of the program.
  std::unique_ptr<Backend> backend = open_cuda();
  guard_device(*backend);
  return backend;
}

Scenario narrowed(const Scenario& scenario, Numerics numerics, std::int64_t seed) {
  Scenario one = scenario;
  one.numerics = {numerics};
  one.checker.schedule.seed = seed;
  one.checker.schedule.count = 1;
  return one;
}

}  // namespace lockstep
