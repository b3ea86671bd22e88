// How the search of a shrinker goes on: what it takes for the same failure, where it ends, and what
// it says of the end. The bugs are of our own making.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/expect/vacuity.h"
#include "tests/harness/shrink/shrink_case.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A wrong order of a sum shows where it happens to round otherwise: the more documents, the
// likelier.
TEST(ShrinkSearch, TriesOtherSeedsWhereSmallerOnesHappenToHold) {
  const auto bug = [](const Scenario& s) {
    const std::int64_t documents = documents_in(s);
    return s.data.kind == DataKind::lengths && documents > 0 &&
           (documents >= 9 || s.training.seed == 6 - documents);
  };
  Scenario large;
  large.name = "rounds";
  large.data.documents = {{{3, 4, 5, 6, 7}, {4, 3, 2, 1}}};
  const Shrunk shrunk = shrink(large, with_bug(bug));
  EXPECT_TRUE(shrunk.finished);
  EXPECT_EQ(documents_in(shrunk.scenario), 1) << to_yaml(shrunk.scenario);
  EXPECT_EQ(shrunk.scenario.training.seed, 5);
  // A failure that is no matter of bits depends on no seed.
  ShrinkOptions without_bits = with_bug(bug);
  without_bits.runner = [by_bits = without_bits.runner](const Scenario& s, const RunOptions& run,
                                                        double timeout_s) {
    CaseResult result = by_bits(s, run, timeout_s);
    result.first_difference.reset();
    return result;
  };
  EXPECT_EQ(shrink(large, without_bits).scenario.training.seed, large.training.seed);
}

TEST(ShrinkSearch, StopsAtItsBudgetWithAScenarioThatFails) {
  const auto bug = [](const Scenario& s) { return has_length(s, 2); };
  ShrinkOptions options = with_bug(bug);
  options.runs = 16;
  const Shrunk shrunk = shrink(generated(3), options);
  EXPECT_FALSE(shrunk.finished);
  EXPECT_LE(shrunk.runs,
            16 + options.tries);  // The count of schedules at the end is owed in any case.
  EXPECT_TRUE(bug(shrunk.scenario));
  EXPECT_THAT(shrunk_yaml(shrunk), HasSubstr("budget ended first"));
}

// The runs that a hurried search left out must confirm its result, also where its budget ends
// first.
TEST(ShrinkSearch, TakesTheSmallestOnlyWhereItIsConfirmed) {
  const auto bug = [](const Scenario& s) { return has_length(s, 2); };
  const Scenario large = generated(3);
  for (const std::int64_t runs : {5000, 40}) {
    ShrinkOptions options = with_bug(bug);
    options.runs = runs;
    options.documents_first = true;
    int asked = 0;
    options.confirmer = [&](const Scenario& scenario) {
      ++asked;
      CaseResult result = failure(scenario, "layers.0.act");
      result.name = "confirmed";
      return result;
    };
    const Shrunk kept = shrink(large, options);
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(kept.result.name, "confirmed");
    EXPECT_LT(documents_in(kept.scenario), documents_in(large));
    options.confirmer = [](const Scenario& scenario) { return unjudged_case(scenario, {}); };
    const Shrunk refused = shrink(large, options);
    EXPECT_FALSE(refused.finished);
    EXPECT_EQ(documents_in(refused.scenario), documents_in(large));
  }
}

TEST(ShrinkSearch, EndsWithFewDocumentsAfterFewRunsWhereTheyComeFirst) {
  const auto bug = [](const Scenario& s) { return has_length(s, 1); };
  std::int64_t first = 0, usual = 0;
  for (const std::uint64_t seed : {3, 5, 7}) {
    for (const bool documents_first : {true, false}) {
      ShrinkOptions options = with_bug(bug);
      options.runs = 14;
      options.tries = 2;
      options.documents_first = documents_first;
      (documents_first ? first : usual) += documents_in(shrink(generated(seed), options).scenario);
    }
  }
  EXPECT_LE(first, 6);
  EXPECT_LT(first, usual);
}

TEST(ShrinkSearch, KeepsASeedThatFailsWhereTheBugIsARace) {
  const auto bug = [](const Scenario& s) {
    return has_length(s, 4) && (s.checker.schedule.seed + std::ssize(s.data.documents)) % 3 == 0;
  };
  Scenario large = generated(5);
  while (!bug(large)) ++large.checker.schedule.seed;
  const Shrunk shrunk = shrink(large, with_bug(bug));
  EXPECT_TRUE(bug(shrunk.scenario)) << to_yaml(shrunk.scenario);
  EXPECT_EQ(shrunk.scenario.data.documents, (std::vector<StepLengths>{{{4}}}));
  EXPECT_LT(shrunk.failed, shrunk.of);
  EXPECT_GT(shrunk.failed, 0);
  EXPECT_THAT(shrunk_yaml(shrunk), HasSubstr("racy: "));
}

TEST(ShrinkSearch, DoesNotSlipToAnotherBug) {
  ShrinkOptions options;
  options.runner = [](const Scenario& s, const RunOptions& run, double) {
    if (s.model.dropout.millionths > 0) return failure(s, "embedding.out");
    return has_length(s, 1) ? failure(s, "logits") : unjudged_case(s, run);
  };
  std::uint64_t seed = 0;
  while (generated(seed).model.dropout.millionths == 0) ++seed;
  const Shrunk shrunk = shrink(generated(seed), options);
  EXPECT_GT(shrunk.scenario.model.dropout.millionths, 0);
  EXPECT_EQ(shrunk.result.first_difference->tensor, "embedding.out");
}

// With a setting less another gradient may be the first of those that one op writes wrongly;
// another op's is another bug.
TEST(ShrinkSearch, TakesAnotherGradientForASettingLess) {
  const auto end_of = [](const std::string& op_without_tying) {
    ShrinkOptions options;
    options.runner = [=](const Scenario& s, const RunOptions&, double) {
      CaseResult result =
          failure(s, s.model.tied_embedding ? "final_norm.gain.gradient" : "head.weight.gradient");
      result.judge = JudgeKind::gradient;
      result.first_difference->op = s.model.tied_embedding ? "accumulate" : op_without_tying;
      return result;
    };
    Scenario large;
    large.name = "tied";
    large.model.tied_embedding = true;
    return shrink(large, options);
  };
  const Shrunk same = end_of("accumulate"), other = end_of("linear_weight_gradient");
  EXPECT_FALSE(same.scenario.model.tied_embedding);
  EXPECT_EQ(same.scenario.name, "gradient-head-weight-gradient");
  EXPECT_EQ(same.result.name, same.scenario.name);
  EXPECT_EQ(same.result.first_difference->tensor, "head.weight.gradient");
  EXPECT_TRUE(other.scenario.model.tied_embedding);
  EXPECT_EQ(other.result.first_difference->tensor, "final_norm.gain.gradient");
}

// Seed 2 of the schedule shows another hazard for want of the edge than all others do, with three
// documents or more.
TEST(ShrinkSearch, KeepsTheHazardOfARaceUnlessASettingGoes) {
  ShrinkOptions options;
  options.runner = [](const Scenario& s, const RunOptions& run, double) {
    CaseResult result = unjudged_case(s, run);
    if (documents_in(s) < 1) return result;
    const bool rare = s.checker.schedule.seed == 2;
    if (rare && documents_in(s) < 3) return result;
    result.verdict = Verdict::violated;
    result.judge = JudgeKind::hazard;
    result.reason = std::string("read after write: ") + (rare ? "rare" : "frequent") +
                    ". Missing edge: a -> b. X";
    return result;
  };
  Scenario large;
  large.name = "race";
  large.data.documents = {{{3, 4, 5}, {4, 3, 2}}};
  large.checker.schedule.seed = 2;
  const Shrunk shrunk = shrink(large, options);
  EXPECT_TRUE(shrunk.finished);
  EXPECT_THAT(shrunk.result.reason, HasSubstr("rare")) << to_yaml(shrunk.scenario);
  EXPECT_EQ(documents_in(shrunk.scenario), 3);
  EXPECT_EQ(shrunk.scenario.checker.schedule.seed, 2);
}

// A stage that keeps all groups of offloading on the device would fail without any bug.
TEST(ShrinkSearch, EndsAtNoScenarioThatAsksInVain) {
  const auto end_of = [](std::int64_t delta_bytes) {
    ShrinkOptions options;
    options.runner = [](const Scenario& s, const RunOptions& run, double) {
      CaseResult result = unjudged_case(s, run);
      const bool only_later_stages_have_groups = s.model.pattern.front() == 'M';
      if (!only_later_stages_have_groups || s.offload.modules.empty() ||
          s.offload.delta_bytes == 0 || s.parallel.pipeline == 1)
        return result;
      result.verdict = Verdict::violated;
      result.judge = JudgeKind::vacuous;
      result.reason = "bytes_planned is 0, expected at least 1";
      return result;
    };
    Scenario large;
    large.name = "delta";
    large.model.pattern = "MM--";  // For one byte the second stage keeps the first of two groups.
    large.model.hidden = 8;
    large.data.documents = {{{3, 4}}};
    large.training.steps = 2;
    large.parallel.pipeline = 2;
    large.offload.modules = {OffloadModule::mlp_fc1};
    large.offload.delta_bytes = delta_bytes;
    return shrink(large, options).scenario;
  };
  const auto in_vain = [](const Scenario& s) { return asked_in_vain(s, *open_data(s)); };
  const Scenario shrunk = end_of(1), given_in_vain = end_of(std::int64_t{1} << 40);
  EXPECT_EQ(in_vain(shrunk), "") << to_yaml(shrunk);
  EXPECT_EQ(shrunk.model.hidden, 1);
  EXPECT_EQ(in_vain(given_in_vain), "bytes_planned") << to_yaml(given_in_vain);
  EXPECT_EQ(given_in_vain.model.pattern, "M-");
}

TEST(ShrinkSearch, SaysWhatMayVary) {
  const Shrunk shrunk =
      shrink(generated(1), with_bug([](const Scenario& s) { return s.model.hidden >= 6; }));
  EXPECT_EQ(shrunk.scenario.model.hidden, 6);
  const auto find = [&](const std::string& key) {
    return *std::find_if(shrunk.freedoms.begin(), shrunk.freedoms.end(),
                         [&](const auto& f) { return f.key == key; });
  };
  EXPECT_THAT(find("model.hidden").fails, ElementsAre("7", "13", "32"));
  EXPECT_THAT(find("model.hidden").other, ElementsAre("5"));
  EXPECT_TRUE(find("training.seed").other.empty());
  EXPECT_EQ(find("training.seed").fails.size(), 2u);
  const std::string text = shrunk_yaml(shrunk);
  EXPECT_THAT(text, HasSubstr("#   model.hidden: 7, 13, 32; not 5\n"));
  EXPECT_TRUE(read_scenario_text(text, "shrunk.yaml").ok()) << text;
}

TEST(ShrinkSearch, LeavesWhatHoldsAlone) {
  const Shrunk shrunk = shrink(generated(1), with_bug([](const Scenario&) { return false; }));
  EXPECT_EQ(shrunk.first.verdict, Verdict::holds);
  EXPECT_EQ(shrunk.runs, 1);
  EXPECT_TRUE(shrunk.result.token.empty());
}

}  // namespace
}  // namespace lockstep
