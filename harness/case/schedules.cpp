#include "harness/case/schedules.h"

#include <utility>

#include "harness/case/guard.h"
#include "harness/case/time_spent.h"
#include "scenarios/rules/legality.h"
#include "scenarios/schema/words.h"

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

Pressure pressure_of(const Scenario& scenario) {
  const Scenario::Checker& checker = scenario.checker;
  Pressure pressure{.delays = {},
                    .seed = static_cast<std::uint64_t>(checker.schedule.seed),
                    .poison_fresh = holds(checker.poison, Poison::fresh),
                    .poison_freed = holds(checker.poison, Poison::freed)};
  for (const Scenario::Delay& delay : checker.delays) {
    pressure.delays.push_back(
        {word(delay.stream), delay.spin, static_cast<int>(delay.rank.value_or(-1))});
  }
  return pressure;
}

ExploreOptions explore_options(const Scenario& scenario) {
  const Scenario::Checker::Schedule& schedule = scenario.checker.schedule;
  using Policy = ExploreOptions::Policy;
  return {.policy = schedule.kind == ScheduleKind::program  ? Policy::program
                    : schedule.kind == ScheduleKind::random ? Policy::random
                                                            : Policy::pct,
          .depth = static_cast<int>(schedule.depth),
          .seed = static_cast<std::uint64_t>(schedule.seed),
          .count = schedule.count,
          .delays = pressure_of(scenario).delays};
}

std::unique_ptr<Backend> open_backend(const std::string& device, const SimOptions& options,
                                      int gpu) {
  // The simulated device computes as the host does, which is guarded when the program starts.
  if (device != "cuda") return open_sim(options);
  std::unique_ptr<Backend> backend;
  {
    const TimeSpent::Part part("opening and closing");
    backend = open_cuda(gpu);
    once_a_process(guard_device, *backend);
  }
  return TimeSpent::counts() ? timed(std::move(backend)) : std::move(backend);
}

Scenario narrowed(const Scenario& scenario, Numerics numerics, std::int64_t seed) {
  Scenario one = scenario;
  one.numerics = {numerics};
  one.checker.schedule.seed = seed;
  one.checker.schedule.count = 1;
  return one;
}

}  // namespace lockstep
