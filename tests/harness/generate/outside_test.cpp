// Scenarios beyond one process and lockstep's own kernels, which are drawn where they are asked for
// alone.
#include "harness/generate/outside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/base/errors.h"
#include "harness/generate/case.h"
#include "harness/generate/features.h"
#include "harness/generate/generator.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kSeeds = 600;

Scenario generate(const Outside& outside, std::uint64_t seed, RareSize rare = RareSize::none) {
  Choices choices(seed);
  return generate_scenario(choices, rare, outside);
}

bool has(const Scenario& s, Trait trait) { return features_of(s)[static_cast<std::size_t>(trait)]; }

TEST(Outside, IsReadAndWrittenAsAList) {
  EXPECT_EQ(to_text(outside_of("cudnn,processes")), "processes,cudnn");
  EXPECT_EQ(to_text(outside_of("nccl")), "nccl");
  EXPECT_FALSE(outside_of("").any());
  EXPECT_THROW(outside_of("processes,mpi"), RequestError);
  EXPECT_THROW(outside_of("processes,,cudnn"), RequestError);
}

TEST(Outside, IsLegalAndBuilt) {
  for (const char* list : {"processes", "nccl", "cudnn", "fp8", "processes,nccl,cudnn"}) {
    const Outside outside = outside_of(list);
    EXPECT_TRUE(check_legality(smallest_with(outside)).empty()) << list;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const auto rare =
          seed % 3 == 0 ? static_cast<RareSize>(seed / 3 % (kRareSizes + 1)) : RareSize::none;
      const Scenario s = generate(outside, seed, rare);
      const std::vector<ScenarioError> illegal = check_legality(s);
      ASSERT_TRUE(illegal.empty())
          << list << ", seed " << seed << ": " << illegal.front().text() << "\n"
          << to_yaml(s);
      ASSERT_TRUE(check_built(s).empty()) << list << ", seed " << seed;
    }
  }
}

TEST(Outside, IsInEveryScenarioThatWasAskedForIt) {
  int whole_steps = 0, both[2] = {0, 0}, cudnn = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Scenario s = generate({.processes = true}, seed);
    EXPECT_TRUE(has(s, Trait::ranks_in_processes)) << seed;
    whole_steps += s.cuda_graph.impl == GraphImpl::full_iteration;
    EXPECT_TRUE(has(generate({.nccl = true}, seed), Trait::ranks_over_nccl)) << seed;
    const Scenario either = generate({.processes = true, .nccl = true}, seed);
    ++both[has(either, Trait::ranks_over_nccl)];
    cudnn += has(generate({.cudnn = true}, seed), Trait::attention_by_cudnn);
  }
  EXPECT_GE(whole_steps, kSeeds / 20);  // Which several ranks of one process cannot have (L37).
  EXPECT_GE(std::min(both[0], both[1]), kSeeds / 3);
  EXPECT_GE(cudnn, kSeeds / 3);
}

TEST(Outside, IsNotDrawnUnasked) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Scenario s = generate({}, seed);
    for (const OutsideName& one : outside_names()) {
      EXPECT_TRUE(one.trait == Trait::fp8 || !has(s, one.trait)) << seed;
    }
  }
}

// fp8 is in other cases too, but in fewer.
TEST(Outside, AThirdIsInFp8WhereItIsAskedFor) {
  constexpr Trait kOften[] = {
      Trait::experts_in_fp8,        Trait::the_last_amax_alone,  Trait::capped_exponents,
      Trait::saturated_codes,       Trait::an_empty_fp8_segment, Trait::a_zero_fp8_operand,
      Trait::a_margin_of_exponents, Trait::saves_qkv_linear,     Trait::saves_attn_proj,
      Trait::saves_mlp_fc1,         Trait::saves_mlp_fc2,        Trait::saves_mamba_in_proj,
      Trait::saves_mamba_out_proj,  Trait::saves_expert_fc1,     Trait::saves_expert_fc2,
      Trait::saves_shared_fc1,      Trait::saves_shared_fc2,     Trait::a_history_of_one,
      Trait::a_history_of_many};
  constexpr int kCases = 3000;
  Distribution drawn;
  for (std::uint64_t seed = 0; seed < kCases; ++seed)
    drawn.add(features_of(generate({.fp8 = true}, seed)));
  const auto count = [&](Trait trait) { return drawn.count(static_cast<std::size_t>(trait)); };
  EXPECT_GE(count(Trait::fp8), kCases / 3);
  EXPECT_GE(count(Trait::fp8_sums_of_several_runs), count(Trait::fp8) / 3);
  for (const Trait trait : kOften)  // 200 times in 100,000 cases.
    EXPECT_GE(count(trait), kCases / 500) << trait_names()[static_cast<std::size_t>(trait)].name;
}

TEST(Outside, ProcessesHaveStagesInTheGraphOfAStep) {
  constexpr int kCases = 3000;
  int chunks = 0, all = 0;
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    const Scenario s = generate({.processes = true}, seed);
    all += has(s, Trait::stages_in_the_graph_of_a_step);
    chunks += has(s, Trait::stages_in_the_graph_of_a_step) && s.parallel.chunks > 1;
  }
  EXPECT_GE(all, kCases / 100);
  EXPECT_GE(chunks, kCases / 500);
}

// 2,000 times in 100,000 cases: as a graph of the experts, of whole layers, and of a whole step.
TEST(Outside, ProcessesHaveExchangesInGraphs) {
  constexpr int kCases = 3000;
  int moe = 0, layers = 0, steps = 0;
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    const Scenario s = generate({.processes = true}, seed);
    if (!has(s, Trait::captured_exchanges)) continue;
    const bool whole = s.cuda_graph.impl == GraphImpl::full_iteration;
    ++(whole ? steps : s.cuda_graph.modules.empty() ? layers : moe);
  }
  EXPECT_GE(moe + layers + steps, kCases / 50);
  EXPECT_GE(std::min({moe, layers, steps}), kCases / 250) << moe << " " << layers << " " << steps;
}

// In all kinds of cases: drawn, steered and rare.
TEST(Outside, IsPartOfEqualCampaigns) {
  const Outside outside{.processes = true};
  for (std::int64_t i = 0; i < 64; ++i) {
    const CampaignCase one = make_case(8, i, "small", outside);
    const Scenario& s = one.scenario;
    EXPECT_EQ(canonical_form(s), canonical_form(make_case(8, i, "small", outside).scenario));
    if (one.invalid) continue;
    EXPECT_NE(canonical_form(s), canonical_form(make_case(8, i, "small").scenario));
    EXPECT_TRUE(has(s, Trait::ranks_in_processes)) << i;
    EXPECT_EQ(read_token(make_token(s)).parallel.transport, Transport::shm) << i;
  }
}

}  // namespace
}  // namespace lockstep
