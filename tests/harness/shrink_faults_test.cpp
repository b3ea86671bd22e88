// Twenty planted faults, found on random scenarios: each shrinks within a minute to a scenario that one can read.
#include "tests/harness/shrink_case.h"

namespace lockstep {
namespace {

constexpr int kFaults = 20;
constexpr std::uint64_t kShuffle = 2026;

class ShrinkFaults : public testing::TestWithParam<int> {};

// A fault that random scenarios do not show gives its place to a later one of the shuffle.
TEST_P(ShrinkFaults, ShrinkToThreeDocumentsAGraphModuleAndAFeature) {
  const std::vector<std::string> faults = shuffled_faults(kShuffle);
  for (std::size_t i = static_cast<std::size_t>(GetParam()); i < faults.size(); i += kFaults) {
    const FoundCase found = find_failure({.device = "sim", .fault = faults[i], .mutation = ""}, 1'000'000 + 10'000 * i);
    if (found.scenarios > 0) return shrinks_and_replays(faults[i], found, 60);
    std::printf("%s: not shown by %d scenarios\n", faults[i].c_str(), kMostScenarios);
  }
  FAIL() << "no fault left";
}

INSTANTIATE_TEST_SUITE_P(Shuffled, ShrinkFaults, testing::Range(0, kFaults));

}  // namespace
}  // namespace lockstep
