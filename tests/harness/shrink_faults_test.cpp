// Twenty planted faults, found on random scenarios: each shrinks within a minute to a scenario that one can read.
#include "tests/harness/shrink_case.h"

namespace lockstep {
namespace {

constexpr int kFaults = 20;
constexpr std::uint64_t kShuffle = 2026;

class ShrinkFaults : public testing::TestWithParam<int> {};

TEST_P(ShrinkFaults, ShrinkToThreeDocumentsAGraphModuleAndAFeature) {
  const int i = GetParam();
  shrinks_and_replays(shuffled_faults(kShuffle)[static_cast<std::size_t>(i)], 1'000'000 + 10'000ull * i, 60);
}

INSTANTIATE_TEST_SUITE_P(Shuffled, ShrinkFaults, testing::Range(0, kFaults));

}  // namespace
}  // namespace lockstep
