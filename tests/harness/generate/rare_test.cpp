#include "harness/generate/rare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "harness/generate/features.h"
#include "harness/generate/generator.h"
#include "harness/generate/traits.h"
#include "harness/run/worker.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kSeeds = 400;

Scenario generate(RareSize rare, std::uint64_t seed) {
  Choices choices(seed);
  return generate_scenario(choices, rare);
}

// How many of kSeeds scenarios have the trait.
std::uint64_t drawn(RareSize rare, Trait trait) {
  std::uint64_t count = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
    count += features_of(generate(rare, seed))[static_cast<std::size_t>(trait)];
  return count;
}

TEST(RareSizes, AreLegalAndBuilt) {
  for (std::uint64_t kind = 1; kind <= kRareSizes; ++kind) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Scenario s = generate(static_cast<RareSize>(kind), seed);
      const std::vector<ScenarioError> illegal = check_legality(s);
      ASSERT_TRUE(illegal.empty())
          << "kind " << kind << ", seed " << seed << ": " << illegal.front().text() << "\n"
          << to_yaml(s);
      const std::vector<ScenarioError> unbuilt = check_built(s);
      ASSERT_TRUE(unbuilt.empty()) << "kind " << kind << ", seed " << seed;
    }
  }
}

TEST(RareSizes, AreWhatTheirNamesSay) {
  EXPECT_EQ(drawn(RareSize::many_layers, Trait::more_than_64_layers), kSeeds);
  // Where masks leave no target a document of two tokens replaces a list.
  EXPECT_GE(drawn(RareSize::many_documents, Trait::more_than_255_documents), kSeeds * 9 / 10);
  EXPECT_GE(drawn(RareSize::buckets_at_powers_of_two, Trait::a_bucket_at_a_power_of_two),
            kSeeds / 8);
  // Graphs of a whole step that nothing fits, and steps that leave none to recapture, have none.
  EXPECT_GE(drawn(RareSize::recapture_under_a_limit, Trait::recapture_under_a_limit), kSeeds / 2);
  EXPECT_EQ(drawn(RareSize::evaluation_with_buckets, Trait::evaluation_with_buckets), kSeeds);
  EXPECT_GE(drawn(RareSize::ends_of_the_vocabulary, Trait::a_vocabulary_over_16_bits), kSeeds / 3);
  EXPECT_GE(drawn(RareSize::ends_of_the_vocabulary, Trait::a_vocabulary_of_two), kSeeds / 20);
  EXPECT_GE(drawn(RareSize::ends_of_the_experts, Trait::the_most_experts), kSeeds / 8);
}

// LOCKSTEP_SCENARIOS of each kind, a few otherwise.
TEST(RareSizes, Hold) {
  const char* asked = std::getenv("LOCKSTEP_SCENARIOS");
  const std::uint64_t seeds = asked ? std::strtoull(asked, nullptr, 10) : 2;
  for (std::uint64_t kind = 1; kind <= kRareSizes; ++kind) {
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      const Scenario s = generate(static_cast<RareSize>(kind), 1000 + seed);
      const CaseResult result = run_in_worker(s, {}, {.fork = true, .timeout_s = 120});
      EXPECT_EQ(result.verdict, Verdict::holds)
          << "kind " << kind << ", seed " << seed << ": " << result.reason << "\n"
          << to_yaml(s);
    }
  }
}

// Capacities one below and one above a power of two, and as many documents as either.
TEST(RareSizes, LieOnBothSidesOfAPowerOfTwo) {
  std::uint64_t below = 0, above = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Scenario s = generate(RareSize::buckets_at_powers_of_two, seed);
    const std::vector<std::int64_t>& buckets = s.cuda_graph.max_packed_seqs;
    for (const StepLengths& step : s.data.documents) {
      for (const MicrobatchLengths& list : step) {
        if (std::ranges::find(buckets, std::ssize(list)) == buckets.end()) continue;
        const auto is_power = [](std::int64_t n) { return n >= 4 && (n & (n - 1)) == 0; };
        below += is_power(std::ssize(list) + 1);
        above += is_power(std::ssize(list) - 1);
      }
    }
  }
  EXPECT_GE(below, 20u);
  EXPECT_GE(above, 20u);
}

}  // namespace
}  // namespace lockstep
