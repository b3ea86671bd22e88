// The checker over the engine: silent on what is right, and every edge that is left out is found on
// every schedule.
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/data/loader.h"
#include "engine/train/trainer.h"
#include "harness/case/schedules.h"
#include "harness/checker/redundant_edges.h"
#include "harness/generate/generator.h"
#include "harness/inject/fault_injector.h"
#include "harness/judge/runner.h"
#include "harness/judge/thread_ranks.h"
#include "harness/mutate/fixture_programs.h"
#include "harness/run/run_case.h"
#include "kernels/core/fault.h"
#include "scenarios/rules/legality.h"
#include "scenarios/schema/words.h"

namespace lockstep {
namespace {

struct Planted {
  explicit Planted(const std::string& name) { plant_fault(name); }
  ~Planted() { plant_fault(""); }
};

Scenario small() {
  Scenario scenario;
  scenario.name = "small";
  scenario.numerics = {Numerics::fp32};
  return scenario;
}

// The engine alone, all its ranks, told to `observer`.
void train(const Scenario& scenario, Observer& observer) {
  const auto data = open_data(scenario);
  const auto injector = planted_alias();
  Device device(open_sim(sim_options(scenario, scenario.checker.schedule.seed)), &observer, {},
                injector.get());
  const auto plain = [](int) { return TrainerOptions{}; };
  train_to_the_end(device, scenario, *data, plain,
                   [](ThreadRank& rank) { rank.trainer.weight_digest(); });
}

std::vector<HazardKind> pipelined(const std::string& fault) {
  const Planted planted(fault);
  Checker checker({.stop = false, .dropped = {}});
  run_ahead_of_the_device(checker);
  std::vector<HazardKind> kinds;
  for (const Hazard& hazard : distinct(checker.hazards())) kinds.push_back(hazard.kind);
  return kinds;
}

TEST(CheckerOverTheLoader, FindsEveryEdgeThatIsLeftOut) {
  using Kinds = std::vector<HazardKind>;
  EXPECT_EQ(pipelined(""), Kinds{});
  EXPECT_EQ(pipelined("compute-ignores-loaded-event").front(), HazardKind::read_after_write);
  EXPECT_EQ(pipelined("loader-ignores-consumed-event"), Kinds{HazardKind::write_after_read});
  EXPECT_EQ(pipelined("loader-ignores-state-consumed-event"), Kinds{HazardKind::write_after_read});
  EXPECT_EQ(pipelined("staging-rewritten-before-its-copy"), Kinds{HazardKind::write_after_read});
  EXPECT_EQ(pipelined("state-staging-rewritten-before-its-copy"),
            Kinds{HazardKind::write_after_read});
  // The state's copy goes before the microbatch's on the same stream, and that one is waited for.
  EXPECT_EQ(pipelined("compute-ignores-step-state-event"), Kinds{});
}

TEST(CheckerOverTheEngine, FindsTheMissingWaitOnEverySchedule) {
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    for (const ScheduleKind kind :
         {ScheduleKind::program, ScheduleKind::random, ScheduleKind::pct}) {
      Scenario scenario = small();
      scenario.cuda_graph.impl = impl;
      if (impl != GraphImpl::partial) scenario.cuda_graph.modules.clear();
      scenario.checker.schedule.kind = kind;
      const Planted planted("compute-ignores-loaded-event");
      const CaseResult result = run_case(scenario, {});
      EXPECT_EQ(result.verdict, Verdict::violated);
      EXPECT_EQ(result.judge, JudgeKind::hazard);
      EXPECT_NE(result.reason.find("Missing edge: loader -> compute"), std::string::npos)
          << result.reason;
    }
  }
}

TEST(CheckerOverTheEngine, CountsItsChecksAndIsOffWhenTheScenarioSaysSo) {
  Scenario scenario = small();
  const CaseResult on = run_case(scenario, {});
  EXPECT_EQ(on.verdict, Verdict::holds) << on.reason;
  EXPECT_GT(on.counters.at(Counter::hazards_checked), 500);
  for (const auto& [counter, value] : on.counters)  // `expect.counters` may name each.
    EXPECT_TRUE(holds(counter_names(), to_text(counter))) << to_text(counter);
  scenario.checker.hazards = false;
  const CaseResult off = run_case(scenario, {});
  EXPECT_EQ(off.verdict, Verdict::holds) << off.reason;
  EXPECT_EQ(off.counters.at(Counter::hazards_checked), 0);
}

// LOCKSTEP_CASES: how many random scenarios.
TEST(CheckerOverTheEngine, IsSilentOnRandomScenarios) {
  const char* cases = std::getenv("LOCKSTEP_CASES");
  const std::uint64_t count = cases == nullptr ? 60 : std::strtoull(cases, nullptr, 10);
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    Choices choices(seed);
    Scenario scenario = generate_scenario(choices);
    scenario.checker.schedule.kind = static_cast<ScheduleKind>(seed % 3);
    Checker checker({.stop = false, .dropped = {}});
    train(scenario, checker);
    ASSERT_TRUE(checker.hazards().empty())
        << "seed " << seed << ": " << text(checker.hazards().front());
    ASSERT_GT(checker.checked(), 0) << "seed " << seed;
  }
}

// The end of a step drains the compute stream, so everything that protects the next step's load
// from this step is redundant today; the wait for what was loaded is not, and neither is the drain
// itself.
TEST(CheckerOverTheEngine, ListsTheEdgesThatTheStepsEndMakesRedundant) {
  Checker checker;
  CallLog log(checker);
  train(small(), log);
  checker.throw_found();
  int needed = 0, redundant = 0;
  for (const EdgeVerdict& one : judge_edges(log)) {
    (one.redundant ? redundant : needed) += 1;
    if (one.redundant) continue;
    // Data that was loaded, and the losses that the host reads at the end.
    EXPECT_TRUE(one.text.starts_with("compute waits for event") ||
                one.text.starts_with("the host waits for all of"))
        << one.text;
  }
  EXPECT_GT(needed, 0);
  EXPECT_GT(redundant, 0);
}

}  // namespace
}  // namespace lockstep
