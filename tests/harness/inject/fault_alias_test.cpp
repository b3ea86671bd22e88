// That every alias of a fault at the device meets a call: a site that is renamed in the engine
// shows here.
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/case/schedules.h"
#include "harness/inject/alias_injector.h"
#include "harness/inject/fault_aliases.h"
#include "harness/judge/thread_ranks.h"
#include "harness/mutate/fixture_programs.h"
#include "harness/run/library.h"
#include "harness/run/suite.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

// Together they have every kind of call that an alias names.
std::vector<Scenario> scenarios() {
  const std::vector<std::string> wanted{"moe-capacity-rounding",
                                        "offload-full-iteration-slack",
                                        "cudnn-attention-full-iteration",
                                        "moe-dropless-host-sync",
                                        "overflow-grows-in-a-slot",
                                        "cudnn-attention-sharded-full-iteration",
                                        "fsdp-ranks-without-shards",
                                        "moe-router-offload",
                                        "recompute-offload",
                                        "recompute-whole-modules",
                                        "offload-captured",
                                        "fp8-eager"};
  std::vector<Scenario> cases;
  std::vector<ScenarioError> errors;
  for (const std::string& file : scenario_files(library_folder())) {
    for (const PlannedCase& one : plan_file(file, true, errors)) {
      if (std::find(wanted.begin(), wanted.end(), one.scenario.name) != wanted.end())
        cases.push_back(one.scenario);
    }
  }
  EXPECT_TRUE(errors.empty());
  EXPECT_GE(cases.size(), wanted.size());
  return cases;
}

std::int64_t triggered(const FaultAlias& alias, const Scenario& scenario) {
  AliasInjector injector(alias);
  const auto data = open_data(scenario);
  SimOptions sim = sim_options(scenario, 1);
  sim.policy = SimOptions::Policy::program;
  try {
    Device device(open_sim(sim), nullptr, pressure_of(scenario), &injector);
    const auto plain = [](int) { return TrainerOptions(); };
    train_to_the_end(device, scenario, *data, plain,
                     [](ThreadRank& rank) { rank.trainer.weight_digest(); });
  } catch (const std::exception&) {  // The device refuses what the alias makes of a capture.
  }
  return injector.triggered();
}

TEST(FaultAliases, AreEachTriggered) {
  const std::vector<Scenario> cases = scenarios();
  ASSERT_GE(fault_aliases().size(), 25u);
  for (const FaultAlias& alias : fault_aliases()) {
    if (alias.name == "checkpoint-leaves-bf16-weights")
      continue;  // No scenario reads a checkpoint: see below.
    EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), [&](const Scenario& scenario) {
      return triggered(alias, scenario) > 0;
    })) << alias.name;
  }
}

TEST(FaultAliases, ShowInWhatReadsACheckpoint) {
  const auto read_back = std::find_if(
      fixture_programs().begin(), fixture_programs().end(), [](const FixtureProgram& program) {
        return std::string(program.name) == "continued-from-checkpoint";
      });
  ASSERT_NE(read_back, fixture_programs().end());
  EXPECT_EQ(read_back->run({}).verdict, Verdict::holds);
  plant_fault("checkpoint-leaves-bf16-weights");
  EXPECT_EQ(read_back->run({}).verdict, Verdict::violated);
  plant_fault("");
}

TEST(FaultAliases, HaveNamesOfTheirOwn) {
  for (const FaultAlias& alias : fault_aliases()) EXPECT_EQ(fault_alias(alias.name), &alias);
  EXPECT_EQ(fault_alias("no-fault"), nullptr);
  EXPECT_EQ(fault_alias(""), nullptr);
}

}  // namespace
}  // namespace lockstep
