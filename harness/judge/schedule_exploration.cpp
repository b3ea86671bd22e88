#include "harness/judge/schedule_exploration.h"

#include <utility>

#include "harness/case/schedules.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

// How many schedules that differ by tags are confirmed with their arithmetic.
constexpr int kConfirmed = 8;

std::string describe_difference(const Program& program, const FoundSchedule& difference) {
  if (difference.item < 0) return "memory was written in another order";
  const ProgramItem& item = at(program.items, difference.item);
  return describe(item.work, at(program.threads, item.thread).name) +
         " met other memory than in the order of the calls";
}

std::string missed_hazard(const Program& program, const FoundSchedule& difference) {
  return "the checker saw no hazard, but on schedule " + std::to_string(difference.seed) + " " +
         describe_difference(program, difference);
}

RunOutcome only(RunFinding finding) {
  RunOutcome outcome;
  outcome.finding = std::move(finding);
  return outcome;
}

}  // namespace

ScheduleExploration::ScheduleExploration(const JudgedCase& one, const ReferenceResults& results,
                                         const Program& program)
    : one_(one),
      results_(results),
      program_(program),
      options_(explore_options(one.scenario)),
      schedules_(options_.count) {}

std::string ScheduleExploration::bound() const {
  return bound_text(program_, explore_options(one_.scenario));
}

std::optional<RunOutcome> ScheduleExploration::next() {
  if (over_ || confirmed_ == kConfirmed || options_.count <= 0) return {};
  const Exploration found = explore(program_, options_);
  over_ = !found.unstable.empty() || (one_.checks_hazards() && found.reordered) || !found.observed;
  if (!found.unstable.empty()) {
    return only(
        {.verdict = Verdict::broken, .judge = JudgeKind::schedule, .reason = found.unstable});
  }
  if (one_.checks_hazards() && found.reordered) {
    return only(
        {.judge = JudgeKind::schedule, .reason = missed_hazard(program_, *found.reordered)});
  }
  if (!found.observed) return {};
  seed_ = static_cast<std::int64_t>(found.observed->seed);
  ++confirmed_;
  options_.seed = found.observed->seed + 1;
  options_.count -= found.schedules;
  return confirm(*found.observed);
}

RunOutcome ScheduleExploration::confirm(const FoundSchedule& difference) const {
  SimGiven given{turns(program_, difference.order)};
  SimOptions sim = sim_options(one_.scenario, *seed_);
  sim.policy = SimOptions::Policy::given;
  sim.given = &given;
  constexpr bool kIsFirst = false;
  RunOutcome outcome = unobserved_run(one_, results_, sim, kIsFirst);
  if (outcome.finding && outcome.finding->thrown) return outcome;
  outcome.counters.reset();
  if (outcome.finding)
    outcome.finding->reason +=
        "; on a schedule in which " + describe_difference(program_, difference);
  return outcome;
}

}  // namespace lockstep
