#include "harness/generate/steering.h"

#include <gtest/gtest.h>

#include "harness/generate/case.h"
#include "harness/generate/features.h"
#include "harness/generate/generator.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

// A case is the same whichever were asked for before: shards, --case and a resumed campaign ask in
// other orders.
TEST(Steering, DependsOnSeedAndNumberAlone) {
  std::vector<std::string> in_order;
  for (std::int64_t i = 0; i < 2 * kSteeredBlock; ++i)
    in_order.push_back(canonical_form(steered_scenario(3, i)));
  for (const std::int64_t i : {100, 7, 70, 6, 127, 0}) {
    EXPECT_EQ(canonical_form(steered_scenario(3, i)), in_order[static_cast<std::size_t>(i)]) << i;
    EXPECT_NE(canonical_form(steered_scenario(4, i)), in_order[static_cast<std::size_t>(i)]) << i;
  }
}

// Cases with an even number are drawn from their seed alone, as they were before there was
// steering.
TEST(Steering, LeavesEveryOtherCaseAsItWas) {
  for (std::int64_t i = 0; i < 40; i += 2) {
    Choices choices(case_seed(9, i));
    Scenario want = generate_scenario(choices);
    want.name = "random-" + std::to_string(i);
    const CampaignCase one = make_case(9, i, "small");
    if (one.invalid) continue;
    EXPECT_EQ(canonical_form(one.scenario), canonical_form(want)) << i;
  }
}

TEST(Steering, LetsMorePairsMeet) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    Distribution steered, plain;
    for (std::int64_t i = 0; i < 640; ++i) {
      steered.add(features_of(steered_scenario(seed, i)));
      Choices choices(case_seed(seed, i));
      plain.add(features_of(generate_scenario(choices)));
    }
    EXPECT_GT(steered.pairs_met(), plain.pairs_met() + 200) << seed;
    std::printf("seed %d: %zu pairs met, %zu without steering, of %zu\n", static_cast<int>(seed),
                steered.pairs_met(), plain.pairs_met(), Distribution::pairs_that_can_meet());
  }
}

}  // namespace
}  // namespace lockstep
