// Shrinking with bugs of our own making, whose smallest scenario is known; and with planted ones.
#include "harness/shrink/shrink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "harness/generate/features.h"
#include "tests/harness/shrink/shrink_case.h"
#include "tests/support/patience.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

// The pack has no row left for a token of the empty document: it grows by one.
TEST(Shrink, LeavesNoEmptyDocumentWhereAnyDocumentDoes) {
  Scenario large;
  large.name = "two-documents";
  large.data.documents = {{{2, 0}}};
  large.data.pack_length = 2;
  large.cuda_graph.max_packed_seqs = {1};
  const auto bug = [](const Scenario& s) { return s.data.documents.front().front().size() > 1; };
  const Shrunk shrunk = shrink(large, with_bug(bug));
  EXPECT_THAT(shrunk.scenario.data.documents, ElementsAre(ElementsAre(ElementsAre(2, 1))))
      << to_yaml(shrunk.scenario);
  EXPECT_EQ(shrunk.scenario.data.pack_length, 3);
}

TEST(Shrink, LowersBucketsAndTheDocumentsInThem) {
  Scenario large;
  large.name = "two-buckets";
  large.data.documents = {{{1, 1, 1, 1, 2}}};
  large.cuda_graph.max_packed_seqs = {4, 10};
  const auto bug = [](const Scenario& s) {
    const std::vector<std::int64_t>& buckets = s.cuda_graph.max_packed_seqs;
    const std::int64_t documents = std::ssize(s.data.documents.front().front());
    return buckets.size() == 2 && documents > buckets[0] && documents <= buckets[1];
  };
  const Shrunk shrunk = shrink(large, with_bug(bug));
  EXPECT_THAT(shrunk.scenario.cuda_graph.max_packed_seqs, ElementsAre(1, 2))
      << to_yaml(shrunk.scenario);
  EXPECT_EQ(documents_in(shrunk.scenario), 2);
}

TEST(Shrink, TakesAChangedCountOfMicrobatchesFromTheStart) {
  Scenario large;
  large.name = "two-at-last";
  large.training.steps = 5;
  large.training.microbatches = large.training.in_flight = 1;
  large.training.change_microbatches_at = {{4, 2}};
  const auto bug = [](const Scenario& s) {
    return s.training.microbatches_at(s.training.steps - 1) > 1;
  };
  const Shrunk shrunk = shrink(large, with_bug(bug));
  EXPECT_THAT(shrunk.scenario.training.change_microbatches_at, testing::IsEmpty())
      << to_yaml(shrunk.scenario);
  EXPECT_EQ(shrunk.scenario.training.microbatches, 2);
}

// Steps before a resume, and between two, go where the bug needs none.
TEST(Shrink, MovesAResumeToTheFirstStepThatFails) {
  Scenario large;
  large.name = "resumed-late";
  large.training.steps = 6;
  large.training.resume_at = {{.step = 5}};
  const auto late = [](const Scenario& s) {
    return !s.training.resume_at.empty() && s.training.resume_at.back().step > 0;
  };
  Shrunk shrunk = shrink(large, with_bug(late));
  EXPECT_EQ(shrunk.scenario.training.steps, 2) << to_yaml(shrunk.scenario);
  ASSERT_EQ(shrunk.scenario.training.resume_at.size(), 1u);
  EXPECT_EQ(shrunk.scenario.training.resume_at.front().step, 1);

  const auto twice = [](const Scenario& s) { return s.training.resume_at.size() > 1; };
  large.training.resume_at = {{.step = 2}, {.step = 4}};
  shrunk = shrink(large, with_bug(twice));
  EXPECT_EQ(shrunk.scenario.training.steps, 3) << to_yaml(shrunk.scenario);
  ASSERT_EQ(shrunk.scenario.training.resume_at.size(), 2u);
  EXPECT_EQ(shrunk.scenario.training.resume_at.front().step, 1);
}

TEST(Shrink, LeavesManyLayersOfOneKind) {
  Scenario large;
  large.name = "many-layers";
  for (int i = 0; i < 20; ++i) large.model.pattern += "M*-E";
  const auto bug = [](const Scenario& s) { return s.model.pattern.size() > 64; };
  const Shrunk shrunk = shrink(large, with_bug(bug));
  EXPECT_TRUE(shrunk.finished);
  EXPECT_EQ(shrunk.scenario.model.pattern, std::string(65, '-')) << to_yaml(shrunk.scenario);
  EXPECT_LT(shrunk.runs, 400);
}

// Microbatches must differ, and did so by dropout alone.
TEST(Shrink, TakesOtherDocumentsInsteadOfDropout) {
  Scenario large;
  large.name = "equal-microbatches";
  large.data.documents = {{{2}}};
  large.data.pack_length = 2;
  large.model.dropout = Ratio{100'000};
  const auto bug = [](const Scenario& s) {
    const StepLengths& lists = s.data.documents.front();
    return s.training.microbatches > 1 &&
           (s.model.dropout.millionths > 0 || (lists.size() > 1 && lists[0] != lists[1]));
  };
  const Shrunk shrunk = shrink(large, with_bug(bug));
  EXPECT_EQ(shrunk.scenario.model.dropout.millionths, 0) << to_yaml(shrunk.scenario);
  EXPECT_THAT(further_features_in(shrunk.scenario), testing::IsEmpty());
  EXPECT_LE(documents_in(shrunk.scenario), 2);
}

TEST(Shrink, FindsTheSmallestScenarioOfABugInData) {
  for (std::uint64_t seed = 1; seed < 12; ++seed) {
    const auto bug = [](const Scenario& s) { return has_length(s, 5); };
    const Scenario large = generated(seed);
    if (!bug(large)) continue;
    const Shrunk shrunk = shrink(large, with_bug(bug));
    EXPECT_TRUE(shrunk.finished);
    const Scenario& s = shrunk.scenario;
    EXPECT_EQ(s.data.documents, (std::vector<StepLengths>{{{5}}})) << to_yaml(s);
    EXPECT_EQ(s.data.pack_length, 5);
    EXPECT_EQ(s.model.pattern, "-");
    EXPECT_EQ(s.model.hidden, 1);
    EXPECT_EQ(s.training.steps, 1);
    EXPECT_EQ(s.training.microbatches, 1);
    EXPECT_EQ(graph_modules_in(s), 0);
    EXPECT_THAT(further_features_in(s), ElementsAre());
  }
}

// Nothing that is drawn has to stay: what always fails ends in one and the same scenario.
TEST(Shrink, EndsInOneScenarioWhateverWasDrawn) {
  std::set<std::string> ends;
  Traits drawn;
  const auto take = [&](std::uint64_t seed, RareSize rare, const Outside& outside = {}) {
    const Scenario large = generated(seed, rare, outside);
    const Traits traits = features_of(large);
    if (ends.size() > 1 || (traits & ~drawn).none()) return;
    drawn |= traits;
    const Shrunk shrunk = shrink(large, with_bug([](const Scenario&) { return true; }));
    EXPECT_TRUE(shrunk.finished);
    if (ends.insert(canonical_form(shrunk.scenario)).second && ends.size() > 1) {
      ADD_FAILURE() << "seed " << seed << "\n"
                    << to_yaml(large) << "# became\n"
                    << to_yaml(shrunk.scenario);
    }
  };
  constexpr std::uint64_t kUsual = 1000, kOfEachSize = 30, kOutside = 20;
  for (std::uint64_t seed = 1; seed <= kUsual + kOfEachSize * kRareSizes; ++seed) {
    const std::uint64_t rare = seed > kUsual ? 1 + seed % kRareSizes : 0;
    take(seed, static_cast<RareSize>(rare));
  }
  for (std::uint64_t seed = 1; seed <= kOutside; ++seed)
    take(seed, RareSize::none, {.processes = true, .nccl = true, .cudnn = true});
  for (std::size_t i = 0; i < trait_names().size(); ++i)
    EXPECT_TRUE(drawn[i]) << trait_names()[i].name;
}

TEST(Shrink, LowersALargeSeedToTheFirstThatIsLarge) {
  Scenario large;
  large.name = "large-seed";
  large.training.seed = (std::int64_t{1} << 53) - 1;
  const Shrunk shrunk =
      shrink(large, with_bug([](const Scenario& s) { return s.training.seed >> 32 > 0; }));
  EXPECT_EQ(shrunk.scenario.training.seed, std::int64_t{1} << 32);
}

TEST(Shrink, KeepsADocumentThatIsCutAndShortensIt) {
  Scenario large;
  large.name = "cut";
  large.data.long_documents = LongDocuments::truncate;
  large.data.documents = {{{300}, {64, 0}}, {{5, 6}}};
  const auto longest = [](const Scenario& s) { return s.data.documents.front().front().front(); };
  const Shrunk shrunk =
      shrink(large, with_bug([&](const Scenario& s) { return longest(s) > s.data.pack_length; }));
  EXPECT_EQ(shrunk.scenario.data.documents, (std::vector<StepLengths>{{{3}}}))
      << to_yaml(shrunk.scenario);
  EXPECT_EQ(shrunk.scenario.data.pack_length, 2);
}

// An effect of drawing that no list shows.
TEST(Shrink, KeepsADistributionThatTheBugNeedsAtItsDefaults) {
  int shrunk_cases = 0;
  for (std::uint64_t seed = 1; shrunk_cases < 5; ++seed) {
    const Scenario large = generated(seed);
    if (large.data.kind != DataKind::distribution) continue;
    ++shrunk_cases;
    const Shrunk shrunk = shrink(
        large, with_bug([](const Scenario& s) { return s.data.kind == DataKind::distribution; }));
    const Scenario::Data::Distribution &left = shrunk.scenario.data.distribution, plain;
    EXPECT_EQ(left.shape, plain.shape) << to_yaml(shrunk.scenario);
    EXPECT_EQ(left.empty, plain.empty);
    EXPECT_EQ(left.seed, plain.seed);
    EXPECT_THAT(further_features_in(shrunk.scenario), ElementsAre("drawn lengths"));
  }
}

TEST(Shrink, KeepsTheFeaturesThatTheBugNeeds) {
  int shrunk_cases = 0;
  for (std::uint64_t seed = 1; seed < 200 && shrunk_cases < 5; ++seed) {
    const auto bug = [](const Scenario& s) {
      return s.model.dropout.millionths > 0 && s.cuda_graph.impl == GraphImpl::partial &&
             s.model.pattern.find('*') != std::string::npos && s.training.in_flight > 1;
    };
    const Scenario large = generated(seed);
    if (!bug(large)) continue;
    ++shrunk_cases;
    const Shrunk shrunk = shrink(large, with_bug(bug));
    const Scenario& s = shrunk.scenario;
    EXPECT_EQ(s.model.pattern, "*") << to_yaml(s);
    EXPECT_EQ(s.training.microbatches, 2);
    EXPECT_EQ(s.training.in_flight, 2);
    EXPECT_EQ(documents_in(s), 1);
    EXPECT_EQ(graph_modules_in(s), 1);
    EXPECT_THAT(further_features_in(s), ElementsAre("dropout"));  // Two in flight is the default.
  }
  EXPECT_EQ(shrunk_cases, 5);
}

TEST(Shrink, LeavesTheOneRecomputationThatTheBugNeeds) {
  Scenario large;
  large.name = "large";
  large.model.pattern = "*-";
  large.model.recompute = {Recompute::layernorm, Recompute::mlp_act};
  const Shrunk shrunk =
      shrink(large, with_bug([](const Scenario& s) {
               return std::find(s.model.recompute.begin(), s.model.recompute.end(),
                                Recompute::mlp_act) != s.model.recompute.end();
             }));
  EXPECT_THAT(shrunk.scenario.model.recompute, ElementsAre(Recompute::mlp_act));
}

// A bias of the experts must stay, so the section of experts cannot go back as a whole.
TEST(Shrink, TakesTheCapacityBackBesideOtherSettingsOfExperts) {
  Scenario large;
  large.name = "large";
  large.model.pattern = "*E";
  large.model.moe.router = Router::sigmoid;
  large.model.moe.expert_bias = true;
  large.model.moe.capacity_factor = Ratio{3'500'000};
  const Shrunk shrunk =
      shrink(large, with_bug([](const Scenario& s) {
               return s.model.moe.expert_bias && s.model.pattern.find('E') != std::string::npos;
             }));
  EXPECT_EQ(shrunk.scenario.model.moe.capacity_factor, Ratio{2'000'000});
  EXPECT_EQ(shrunk.scenario.model.moe.hidden, 1);
}

// A bug that needs two buckets of the embedding at least keeps them while the vocabulary shrinks.
TEST(Shrink, LowersTheVocabularyWithItsBuckets) {
  Scenario large;
  large.name = "large";
  large.model.vocab = 64;
  large.fsdp.strategy = Sharding::optim;
  large.fsdp.bucket_bytes = 4096;
  const auto buckets = [](const Scenario& s) {
    const std::int64_t bytes = s.model.vocab * s.model.hidden * 4;
    return s.fsdp.bucket_bytes == 0 ? 1 : bytes / s.fsdp.bucket_bytes;
  };
  const Shrunk shrunk =
      shrink(large, with_bug([&](const Scenario& s) {
               return s.fsdp.strategy == Sharding::optim && s.model.hidden == 32 && buckets(s) == 2;
             }));
  EXPECT_EQ(shrunk.scenario.model.vocab, 2);
  EXPECT_EQ(buckets(shrunk.scenario), 2);
}

// A bug that needs one group of offloading to stay, of two in the second stage.
TEST(Shrink, LowersTheWidthWithTheBytesThatStay) {
  Scenario large;
  large.name = "large";
  large.model.pattern = "MM--";
  large.model.hidden = 64;
  large.training.steps = 2;
  large.parallel.pipeline = 2;
  large.offload.modules = {OffloadModule::mlp_fc1};
  const auto staying = [](const Scenario& s) {
    const std::int64_t group = s.data.pack_length * s.model.hidden * 4;
    return (s.offload.delta_bytes + group - 1) / group;
  };
  large.offload.delta_bytes = large.data.pack_length * large.model.hidden * 3;
  const auto bug = [&](const Scenario& s) {
    return s.model.pattern == "MM--" && s.data.pack_length == Scenario().data.pack_length &&
           s.parallel.pipeline == 2 && !s.offload.modules.empty() && s.offload.delta_bytes > 1 &&
           staying(s) == 1 && 2 * s.offload.delta_bytes > s.data.pack_length * s.model.hidden * 4;
  };
  ASSERT_TRUE(bug(large));
  const Shrunk shrunk = shrink(large, with_bug(bug));
  EXPECT_EQ(shrunk.scenario.model.hidden, 1) << to_yaml(shrunk.scenario);
}

// The target of the microbatch that falls back may lie in any of its documents.
TEST(Shrink, LowersCapacityAroundTheDocumentThatMatters) {
  const auto bug = [](const Scenario& s) {
    const MicrobatchLengths& list = s.data.documents.front().back();
    return std::ssize(list) > s.cuda_graph.max_packed_seqs.back() && list[list.size() - 2] > 1;
  };
  Scenario large;
  large.name = "large";
  large.training.in_flight = 1;
  large.cuda_graph.max_packed_seqs = {3};
  large.data.documents = {{{4}, {1, 1, 2, 1}}};
  ASSERT_TRUE(bug(large));
  const Shrunk shrunk = shrink(large, with_bug(bug));
  EXPECT_EQ(shrunk.scenario.data.documents.front().back(), (MicrobatchLengths{2, 1}))
      << to_yaml(shrunk.scenario);
}

// Fallback needs more documents than places: both go down together, to the fewest with which a
// graph still replays.
TEST(Shrink, LowersCapacityWithItsDocuments) {
  const auto bug = [](const Scenario& s) {
    return further_features_in(s) == std::vector<std::string>{"fallback"};
  };
  Scenario large;
  large.name = "large";
  large.training.in_flight = 1;
  large.data.documents = {{{1, 2, 3, 4, 5, 6, 7, 8, 9}, {5, 5, 5, 5}}};
  ASSERT_TRUE(bug(large));
  const Shrunk shrunk = shrink(large, with_bug(bug));
  EXPECT_EQ(documents_in(shrunk.scenario), 2) << to_yaml(shrunk.scenario);
  EXPECT_THAT(shrunk.scenario.cuda_graph.max_packed_seqs, ElementsAre(1));
}

// Only the last but two of 51 documents has a target, and every microbatch needs one.
TEST(Shrink, LowersBucketsWhoseDocumentsLoseTheirTarget) {
  Scenario large;
  large.name = "buckets";
  large.data.documents = {{MicrobatchLengths(51, 1)}};
  large.data.documents[0][0][48] = 2;
  large.cuda_graph.max_packed_seqs = {50, 51};
  const auto bug = [](const Scenario& s) {
    const std::vector<std::int64_t>& buckets = s.cuda_graph.max_packed_seqs;
    const MicrobatchLengths& list = s.data.documents.front().front();
    return buckets.size() == 2 && std::ssize(list) > buckets[0] && has_length(s, 2);
  };
  const Shrunk shrunk = shrink(large, with_bug(bug));
  EXPECT_TRUE(bug(shrunk.scenario));
  EXPECT_EQ(documents_in(shrunk.scenario), 2) << to_yaml(shrunk.scenario);
}

// Removing a single document does not remove what steps and microbatches share.
TEST(Shrink, FindsFewDocumentsInOtherPlaces) {
  Scenario large;
  large.name = "places";
  large.data.documents = {{{3, 4}, {5}}, {{6}, {7, 2}}};
  large.training.steps = 2;
  large.training.microbatches = 2;
  const auto differ = [](const Scenario& s) {
    const auto& d = s.data.documents;
    return d.size() == 2 && d[0].size() == 2 && d[1].size() == 2 &&
           std::ssize(d[0][1]) != std::ssize(d[1][1]) && !d[0][1].empty() && !d[1][1].empty() &&
           d[0][0].size() + d[1][0].size() != 2;
  };
  const Shrunk shrunk = shrink(large, with_bug(differ));
  EXPECT_TRUE(shrunk.finished);
  EXPECT_TRUE(differ(shrunk.scenario));
  EXPECT_LE(documents_in(shrunk.scenario), 3) << to_yaml(shrunk.scenario);
}

TEST(Shrink, TakesADocumentWithoutATargetForAMask) {
  Scenario large;
  large.name = "no-target";
  large.data.documents = {{{4, 5}}};
  large.data.mask.microbatches = {0};
  large.training.steps = 2;
  large.training.microbatches = 1;
  large.training.change_microbatches_at = {{.step = 1, .microbatches = 2}};
  const auto first_has_no_target = [](const Scenario& s) {
    const MicrobatchLengths& first = s.data.documents.front().front();
    const auto has_one = [](std::int64_t length) { return length > 1; };
    return s.training.steps > 1 && (std::ssize(s.data.mask.microbatches) > 0 ||
                                    std::none_of(first.begin(), first.end(), has_one));
  };
  const Shrunk shrunk = shrink(large, with_bug(first_has_no_target));
  EXPECT_TRUE(first_has_no_target(shrunk.scenario));
  EXPECT_THAT(further_features_in(shrunk.scenario), ElementsAre()) << to_yaml(shrunk.scenario);
}

TEST(Shrink, ShrinksThreePlantedFaults) {
  for (const char* fault :
       {"attention-leaks-previous-document", "replay-runs-twice", "adamw-forgets-clip"}) {
    const FoundCase found = find_failure({.device = "sim", .planted = {.engine = fault}}, 77);
    ASSERT_GT(found.scenarios, 0) << fault;
    shrinks_and_replays(fault, found, 60 * patience());
  }
}

}  // namespace
}  // namespace lockstep
