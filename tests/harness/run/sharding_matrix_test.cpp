// Graphs x sharding x buffers x ranks x microbatches, against the oracle with the checker on: every
// legal combination holds, every other is refused by the rule that it breaks. Ranks are processes
// where a graph holds a whole step.
//
// Without settings a few combinations are drawn (LOCKSTEP_SEED). LOCKSTEP_MATRIX=i/n runs every
// n-th one from the i-th, so 1/1 all; LOCKSTEP_TEST_DEVICE=cuda on a GPU.
#include "tests/harness/run/sharding_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string_view>

#include "harness/judge/runner.h"
#include "harness/run/multi_process_case.h"
#include "harness/run/run_case.h"
#include "kernels/core/fault.h"
#include "scenarios/io/reader.h"
#include "tests/support/seed.h"

namespace lockstep {
namespace {

constexpr std::size_t kSample = 16;

std::vector<Scenario> legal_cases() {
  std::vector<Scenario> list;
  for (const MatrixCase& one : sharding_matrix()) {
    const char* device = std::getenv("LOCKSTEP_TEST_DEVICE");
    const bool here =
        device == nullptr || std::string_view(device) == "sim" || !wants_processes(one.scenario);
    if (one.rule == "none" && here) list.push_back(one.scenario);
  }
  return list;
}

// The scenarios of shard i of n, from 1, or a sample.
std::vector<Scenario> chosen() {
  std::vector<Scenario> all = legal_cases(), list;
  const char* shard = std::getenv("LOCKSTEP_MATRIX");
  std::size_t i = 0, n = 0;
  if (shard == nullptr) {
    std::mt19937_64 random(test_seed());
    for (std::size_t k = 0; k < kSample; ++k) list.push_back(all[random() % all.size()]);
    return list;
  }
  if (std::sscanf(shard, "%zu/%zu", &i, &n) != 2 || i < 1 || i > n) {
    ADD_FAILURE() << "LOCKSTEP_MATRIX is " << shard << ", not i/n";
    return {};
  }
  constexpr std::size_t kStride = 7919;  // A prime: each shard meets all settings, whatever n is.
  for (std::size_t k = i - 1; k < all.size(); k += n) list.push_back(all[k * kStride % all.size()]);
  return list;
}

TEST(ShardingMatrix, RefusesWhatIsIllegalByTheRuleThatItBreaks) {
  std::set<std::string> names, rules;
  for (const MatrixCase& one : sharding_matrix()) {
    SCOPED_TRACE(one.scenario.name);
    EXPECT_TRUE(names.insert(one.scenario.name).second);
    const std::vector<ScenarioError> errors = check_legality(one.scenario);
    EXPECT_EQ(errors.empty() ? "none" : errors.front().rule, one.rule);
    EXPECT_TRUE(check_built(one.scenario).empty());
    rules.insert(one.rule);
  }
  EXPECT_EQ(rules, (std::set<std::string>{"L32", "L33", "L34", "none"}));
}

TEST(ShardingMatrix, HasTheOraclesBitsInEveryLegalCombination) {
  RunOptions options;
  if (const char* device = std::getenv("LOCKSTEP_TEST_DEVICE")) options.device = device;
  std::size_t held = 0;
  const std::vector<Scenario> cases = chosen();
  for (const Scenario& scenario : cases) {
    const CaseResult result = run_case(scenario, options);
    held += result.verdict == Verdict::holds;
    EXPECT_EQ(result.verdict, Verdict::holds) << scenario.name << ": " << result.judge << ": "
                                              << result.reason << "\n  replay: " << result.replay;
    std::printf("%s %s in %.2f s\n", scenario.name.c_str(), to_text(result.verdict),
                result.seconds);
    std::fflush(stdout);
  }
  std::printf("%zu of %zu combinations held\n", held, cases.size());
  EXPECT_FALSE(cases.empty());
}

// The combinations can tell: what goes wrong shows in one of two.
TEST(ShardingMatrix, ShowsWhatIsPlanted) {
  const std::vector<Scenario> cases = legal_cases();
  for (const char* fault :
       {"reduce-dropped", "reduce-runs-twice", "gather-not-awaited", "folded-in-another-order",
        "weights-not-gathered-after-the-optimizer", "slot-reused-while-reducing"}) {
    int shown = 0;
    plant_fault(fault);
    for (const char* name : {"fp32-attn-mamba-params-double-persist-p1-r3-m2",
                             "bf16-router-odd-params-double-persist-p1-r3-m2"}) {
      const auto found = std::find_if(cases.begin(), cases.end(),
                                      [&](const Scenario& s) { return s.name == name; });
      ASSERT_NE(found, cases.end()) << name;
      shown += run_case(*found, {}).verdict == Verdict::violated;
    }
    plant_fault("");
    EXPECT_GT(shown, 0) << fault;
  }
}

}  // namespace
}  // namespace lockstep
