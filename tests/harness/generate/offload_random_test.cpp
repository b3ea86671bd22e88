// Random scenarios that offload, engine against oracle, on the device under test: at least six
// steps, delays on the streams that copy, every second one with enough microbatches in flight for
// two sets of bins.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "engine/offload/plan.h"
#include "harness/case/schedules.h"
#include "harness/generate/generator.h"
#include "harness/judge/runner.h"
#include "harness/report/report.h"
#include "harness/run/run_case.h"
#include "scenarios/io/reader.h"
#include "tests/harness/generate/random_property.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSteps = 6;

std::string device_under_test() {
  const char* name = std::getenv("LOCKSTEP_TEST_DEVICE");
  return name == nullptr ? "sim" : name;
}

// On one rank; ranks of their own are harness/judge/thread_ranks.h's.
Scenario offloading(std::uint64_t seed) {
  for (std::uint64_t attempt = 0;; ++attempt) {
    Choices c(seed * 1'000'003 + attempt);
    Scenario s = generate_scenario(c);
    s.name = "offload-" + std::to_string(seed);
    test::leave_out_the_schedule(s);
    if (s.parallel.data > 1 || plan_offload(s).empty()) continue;
    s.training.steps = std::max(kSteps, s.training.steps);
    s.training.optimizer.decay_steps =
        std::max<std::int64_t>(s.training.steps, s.training.optimizer.decay_steps);
    if (seed % 2 == 0) {
      s.training.change_microbatches_at.clear();
      s.training.in_flight = c.between(3, 4);
      s.training.microbatches = s.training.in_flight + c.between(0, 3);
    }
    s.checker.delays = {{DelayStream::d2h, std::nullopt, c.between(1, 30)},
                        {DelayStream::h2d, std::nullopt, c.between(1, 30)}};
    if (c.one_in(2))
      s.checker.delays.push_back({DelayStream::compute, std::nullopt, c.between(1, 4)});
    if (check_legality(s).empty()) return s;
  }
}

TEST(RandomOffloading, EveryBitIsTheOracles) {
  const std::string device = device_under_test();
  const std::uint64_t count = device == "cuda" ? 120 : 20;
  RunOptions options;
  options.device = device;
  std::int64_t ahead = 0;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    const Scenario s = offloading(seed);
    const OffloadPlan plan = plan_offload(s);
    ahead += plan.sets > 1;
    for (const Numerics numerics : s.numerics) {
      const CaseResult result = run_case(narrowed(s, numerics, s.checker.schedule.seed), options);
      ASSERT_EQ(result.verdict, Verdict::holds) << failure_block(result);
    }
  }
  EXPECT_GE(ahead * 3, static_cast<std::int64_t>(count));
}

}  // namespace
}  // namespace lockstep
