// The data source: what a step's documents are, for every kind, and that they depend on nothing but
// their place.
#include "scenarios/documents/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "scenarios/documents/layout.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

std::vector<std::int64_t> lengths(const Microbatch& microbatch) {
  std::vector<std::int64_t> list;
  for (const Document& document : microbatch.documents) list.push_back(std::ssize(document.tokens));
  return list;
}

bool same(const StepData& a, const StepData& b) {
  if (a.targets != b.targets || a.microbatches.size() != b.microbatches.size()) return false;
  for (std::size_t m = 0; m < a.microbatches.size(); ++m) {
    const auto& x = a.microbatches[m].documents;
    const auto& y = b.microbatches[m].documents;
    if (x.size() != y.size()) return false;
    for (std::size_t d = 0; d < x.size(); ++d) {
      if (x[d].number != y[d].number || x[d].tokens != y[d].tokens || x[d].targets != y[d].targets)
        return false;
    }
  }
  return true;
}

// Targets a step says it has, counted again.
std::int64_t count_targets(const StepData& step) {
  std::int64_t count = 0;
  for (const Microbatch& microbatch : step.microbatches) {
    for (const Document& document : microbatch.documents) {
      for (const std::int32_t target : document.targets) count += target != -1;
    }
  }
  return count;
}

TEST(Documents, SlotRowsAreLengthAndGapsRoundedUp) {
  EXPECT_EQ(slot_rows(0, 3, 8), 0);
  EXPECT_EQ(slot_rows(1, 0, 1), 1);
  EXPECT_EQ(slot_rows(5, 3, 8), 8);
  EXPECT_EQ(slot_rows(6, 3, 8), 16);
}

TEST(Documents, DummySlotCountsOnlyWhenRowsAreLeft) {
  Scenario::Data data;
  EXPECT_EQ(slots_in_use(data, MicrobatchLengths{20, 0, 30}), 3);
  data.tail = Tail::append_dummy_seq;
  EXPECT_EQ(slots_in_use(data, MicrobatchLengths{20, 0, 30}), 4);
  EXPECT_EQ(slots_in_use(data, MicrobatchLengths{}), 1);
  EXPECT_EQ(slots_in_use(data, MicrobatchLengths{64}), 1);
  data.align = 16;
  EXPECT_EQ(slots_in_use(data, MicrobatchLengths{17, 31}), 2);
}

TEST(Documents, AGraphIsMadeForSlotsAndForTheLongestDocument) {
  Scenario scenario;
  scenario.cuda_graph.max_packed_seqs = {2, 3};
  const auto reason = [&](const MicrobatchLengths& lengths) {
    return unfit(scenario, need_of(scenario.data, lengths));
  };
  EXPECT_EQ(reason({20, 0, 30}), Unfit::no);
  EXPECT_EQ(reason({64}), Unfit::no) << "no bound but the pack";
  EXPECT_EQ(reason({1, 1, 1, 1}), Unfit::documents);
  scenario.cuda_graph.max_seqlen = 30;
  EXPECT_EQ(reason({20, 0, 30}), Unfit::no);
  EXPECT_EQ(reason({31}), Unfit::length);
  EXPECT_EQ(reason({31, 1, 1, 1}), Unfit::documents) << "too many documents count first";
  EXPECT_EQ(reason({}), Unfit::no);
}

TEST(Documents, ListsRepeatByStepAndMicrobatch) {
  Scenario scenario;
  scenario.training.microbatches = 3;
  const auto source = open_data(scenario);
  const StepData step = source->training(2);
  ASSERT_EQ(step.microbatches.size(), 3u);
  EXPECT_THAT(lengths(step.microbatches[0]), ElementsAre(17, 1, 0, 30));
  EXPECT_THAT(lengths(step.microbatches[1]), ElementsAre(5, 16, 33));
  EXPECT_THAT(lengths(step.microbatches[2]), ElementsAre(17, 1, 0, 30));
  EXPECT_THAT(lengths(source->training(1).microbatches[0]), ElementsAre(64));
}

TEST(Documents, NumbersCountEveryDocumentOfTheStepInOrder) {
  const StepData step = open_data(Scenario{})->training(0);
  std::vector<std::int32_t> numbers;
  for (const Microbatch& microbatch : step.microbatches) {
    for (const Document& document : microbatch.documents) numbers.push_back(document.number);
  }
  EXPECT_THAT(numbers, ElementsAre(0, 1, 2, 3, 4, 5, 6));
}

TEST(Documents, TargetIsTheNextTokenAndTheLastHasNone) {
  const StepData step = open_data(Scenario{})->training(0);
  const Document& document = step.microbatches[0].documents[0];
  ASSERT_EQ(document.tokens.size(), 17u);
  EXPECT_TRUE(
      std::equal(document.tokens.begin() + 1, document.tokens.end(), document.targets.begin()));
  EXPECT_EQ(document.targets.back(), -1);
  EXPECT_EQ(step.targets, 16 + 0 + 29 + 4 + 15 + 32);
}

TEST(Documents, TokensNeverRepeatAcrossStepsMicrobatchesAndEvaluation) {
  Scenario scenario;
  scenario.model.vocab = 262144;
  scenario.data.documents = {{{32, 32}}};
  scenario.training.steps = 4;
  const auto source = open_data(scenario);
  std::set<std::vector<std::int32_t>> seen;
  int documents = 0;
  const auto take = [&](const StepData& step) {
    for (const Microbatch& microbatch : step.microbatches) {
      for (const Document& document : microbatch.documents) {
        seen.insert(document.tokens);
        ++documents;
      }
    }
  };
  for (int step = 0; step < 4; ++step) {
    take(source->training(step));
    take(source->evaluation(step));
  }
  EXPECT_EQ(documents, 32);
  EXPECT_EQ(seen.size(), 32u);
}

TEST(Documents, TokensAreOfTheVocabularyAndSpread) {
  Scenario scenario;
  scenario.model.vocab = 7;
  scenario.data.pack_length = 700;
  scenario.data.documents = {{{700}}};
  const StepData step = open_data(scenario)->training(0);
  std::vector<int> counts(7);
  for (const std::int32_t token : step.microbatches[0].documents[0].tokens) {
    ASSERT_GE(token, 0);
    ASSERT_LT(token, 7);
    ++counts[token];
  }
  // A hundred each on average; 60 is more than four standard deviations away.
  for (const int count : counts) EXPECT_GT(count, 60);
}

// The values stand here so that a change of the generator, on any machine, is seen.
TEST(Documents, DrawsAreTheSameEverywhere) {
  const StepData step = open_data(Scenario{})->training(1);
  const auto& tokens = step.microbatches[1].documents[2].tokens;
  EXPECT_EQ(std::vector(tokens.begin(), tokens.begin() + 8),
            (std::vector<std::int32_t>{31, 1, 10, 60, 61, 8, 53, 48}));
}

TEST(Documents, MasksTakeAwayTargetsOnly) {
  Scenario scenario;
  const StepData all = open_data(scenario)->training(0);
  scenario.data.mask.prefix = 3;
  scenario.data.mask.microbatches = {1};
  const StepData masked = open_data(scenario)->training(0);
  EXPECT_EQ(masked.targets, 13 + 0 + 26);
  EXPECT_EQ(masked.microbatches[0].documents[0].tokens, all.microbatches[0].documents[0].tokens);
  EXPECT_THAT(std::vector(masked.microbatches[0].documents[0].targets.begin(),
                          masked.microbatches[0].documents[0].targets.begin() + 3),
              ElementsAre(-1, -1, -1));
  EXPECT_EQ(masked.microbatches[0].documents[0].targets[3],
            all.microbatches[0].documents[0].targets[3]);
  for (const Document& document : masked.microbatches[1].documents) {
    for (const std::int32_t target : document.targets) EXPECT_EQ(target, -1);
  }
}

TEST(Documents, RateMasksItsShareAndIsDrawnPerStep) {
  Scenario scenario;
  scenario.data.pack_length = 4001;
  scenario.data.documents = {{{4001}}};
  scenario.training.microbatches = 1;
  scenario.data.mask.rate = {250'000};
  const auto source = open_data(scenario);
  const StepData first = source->training(0), second = source->training(1);
  // 3000 of 4000 on average, with a standard deviation of 28.
  EXPECT_NEAR(static_cast<double>(first.targets), 3000, 140);
  const auto masked = [](const StepData& step) {
    std::vector<bool> rows;
    for (const std::int32_t target : step.microbatches[0].documents[0].targets)
      rows.push_back(target < 0);
    return rows;
  };
  EXPECT_NE(masked(first), masked(second));
  scenario.data.mask.rate = {1'000'000};
  EXPECT_EQ(open_data(scenario)->training(0).targets, 0);
}

TEST(Documents, MicrobatchesFollowTheChangesAndTheRanks) {
  Scenario scenario;
  scenario.parallel.data = 3;
  scenario.training.steps = 5;
  scenario.training.change_microbatches_at = {{2, 4}};
  const auto source = open_data(scenario);
  EXPECT_EQ(source->training(1).microbatches.size(), 6u);
  EXPECT_EQ(source->training(2).microbatches.size(), 12u);
  EXPECT_EQ(source->evaluation(2).microbatches.size(), 12u);
}

TEST(Documents, TruncateCutsToThePack) {
  Scenario scenario;
  scenario.data.documents = {{{100}}};
  scenario.data.long_documents = LongDocuments::truncate;
  EXPECT_THAT(lengths(open_data(scenario)->training(0).microbatches[0]), ElementsAre(64));
}

// A folder of files that goes away with the test.
Scenario text_of(const TemporaryFolder& folder, std::int64_t pack_length) {
  Scenario scenario;
  scenario.model.vocab = 256;
  scenario.data.kind = DataKind::text;
  scenario.data.path = folder.path();
  scenario.data.long_documents = LongDocuments::split;
  scenario.data.pack_length = pack_length;
  scenario.training.microbatches = 1;
  return scenario;
}

// The bytes of a microbatch, its documents between bars.
std::string written(const Microbatch& microbatch) {
  std::string text;
  for (const Document& document : microbatch.documents) {
    text += "|";
    text.append(document.tokens.begin(), document.tokens.end());
  }
  return text + "|";
}

// The targets as bytes, `.` where there is none.
std::string wanted(const Document& document) {
  std::string text;
  for (const std::int32_t target : document.targets)
    text += target < 0 ? '.' : static_cast<char>(target);
  return text;
}

TEST(Bytes, TextIsPackedNextFitSplitAndReadCyclically) {
  const TemporaryFolder folder;
  folder.file("a", "abcde");
  folder.file("b", "0123456789");
  folder.file("c", "xyz");
  const Scenario scenario = text_of(folder, 8);
  const auto source = open_data(scenario);
  EXPECT_EQ(written(source->training(0).microbatches[0]),
            "|abcde|");  // The next piece needs 8 rows.
  EXPECT_EQ(written(source->training(1).microbatches[0]), "|01234567|");
  EXPECT_EQ(written(source->training(2).microbatches[0]), "|89|xyz|");
  EXPECT_TRUE(same(source->training(3), source->training(0)));
  EXPECT_EQ(wanted(source->training(1).microbatches[0].documents[0]), "1234567.");
  EXPECT_EQ(wanted(source->training(2).microbatches[0].documents[1]), "yz.");
}

TEST(Bytes, PieceLooksOnWhereTheDocumentGoesOn) {
  const TemporaryFolder folder;
  folder.file("b", "0123456789");
  Scenario scenario = text_of(folder, 8);
  scenario.data.mask.document_end = false;
  const auto source = open_data(scenario);
  EXPECT_EQ(wanted(source->training(0).microbatches[0].documents[0]), "12345678");
  EXPECT_EQ(wanted(source->training(1).microbatches[0].documents[0]), "9.");
}

TEST(Bytes, GapsAndAlignShortenThePieces) {
  const TemporaryFolder folder;
  folder.file("b", "0123456789");
  Scenario scenario = text_of(folder, 11);
  scenario.data.gaps = 1;
  scenario.data.align = 4;
  const auto source = open_data(scenario);
  EXPECT_EQ(written(source->training(0).microbatches[0]), "|0123456|");
  EXPECT_EQ(written(source->training(1).microbatches[0]), "|789|");
}

TEST(Bytes, TruncateDropsTheRest) {
  const TemporaryFolder folder;
  folder.file("b", "0123456789");
  Scenario scenario = text_of(folder, 8);
  scenario.data.long_documents = LongDocuments::truncate;
  const auto source = open_data(scenario);
  EXPECT_EQ(written(source->training(0).microbatches[0]), "|01234567|");
  EXPECT_TRUE(same(source->training(0), source->training(1)));
}

TEST(Bytes, TrainingNeverReadsTheLastPacks) {
  const TemporaryFolder folder;
  folder.file("b", "aaaabbbbccccddddeeee");
  Scenario scenario = text_of(folder, 4);
  scenario.training.microbatches = 2;
  scenario.training.eval_every = 1;
  scenario.training.steps = 9;
  const auto source = open_data(scenario);
  std::set<std::string> trained, evaluated;
  for (int step = 0; step < 9; ++step) {
    for (const Microbatch& microbatch : source->training(step).microbatches)
      trained.insert(written(microbatch));
    for (const Microbatch& microbatch : source->evaluation(step).microbatches)
      evaluated.insert(written(microbatch));
  }
  EXPECT_THAT(trained, ElementsAre("|aaaa|", "|bbbb|", "|cccc|"));
  EXPECT_THAT(evaluated, ElementsAre("|dddd|", "|eeee|"));
}

TEST(Bytes, PacksGoOnAcrossAChangeOfTheCount) {
  const TemporaryFolder folder;
  folder.file("b", "aabbccddeeffgghh");
  Scenario scenario = text_of(folder, 2);
  scenario.training.steps = 4;
  scenario.training.change_microbatches_at = {{1, 2}, {2, 3}};
  const auto source = open_data(scenario);
  std::string read;
  for (int step = 0; step < 4; ++step) {
    for (const Microbatch& microbatch : source->training(step).microbatches)
      read += written(microbatch).substr(1, 1);
  }
  EXPECT_EQ(read, "abcdefgha");
}

TEST(Bytes, MessagesHaveTargetsInTheContentsOfTheirRolesOnly) {
  const TemporaryFolder folder;
  folder.file("m.jsonl", R"({"messages": [{"role": "user", "content": "hi"}, )"
                         R"({"role": "assistant", "content": "yes"}]})");
  Scenario scenario = text_of(folder, 64);
  scenario.data.kind = DataKind::jsonl;
  scenario.data.path = folder / "m.jsonl";
  const auto source = open_data(scenario);
  const StepData step = source->training(0);
  EXPECT_EQ(written(step.microbatches[0]), "|user: hi\nassistant: yes\n|");
  EXPECT_EQ(wanted(step.microbatches[0].documents[0]), "...................yes..");
  EXPECT_EQ(step.targets, 3);
}

TEST(Bytes, UnigramEntropyIsOfTheTargets) {
  const TemporaryFolder folder;
  folder.file("b", "xabab");  // Targets: a b a b.
  EXPECT_NEAR(open_data(text_of(folder, 8))->unigram_entropy(), std::log(2.0), 1e-12);
}

TEST(Bytes, OnePackIsKeptForEvaluation) {
  const TemporaryFolder folder;
  folder.file("b", "ab");
  Scenario scenario = text_of(folder, 8);
  scenario.training.eval_every = 1;
  const auto source = open_data(scenario);
  EXPECT_EQ(written(source->training(0).microbatches.at(0)), "|");
  EXPECT_EQ(written(source->evaluation(0).microbatches.at(0)), "|ab|");
}

TEST(Bytes, FilesThatAreGoneAreRefused) {
  const TemporaryFolder folder;
  EXPECT_THROW(open_data(text_of(folder, 8)), std::runtime_error);
}

// Any distribution with any gaps, align, pack and range: what is drawn fits, and is drawn again on
// a second look.
RC_GTEST_PROP(Distribution, AlwaysFitsAndIsDrawnAgain, ()) {
  Scenario scenario;
  scenario.model.vocab = 16;
  Scenario::Data& data = scenario.data;
  data.kind = DataKind::distribution;
  data.pack_length = *rc::gen::inRange<std::int64_t>(1, 300);
  data.gaps = *rc::gen::weightedOneOf<std::int64_t>(
      {{3, rc::gen::just<std::int64_t>(0)}, {1, rc::gen::inRange<std::int64_t>(0, 257)}});
  data.align = *rc::gen::weightedOneOf<std::int64_t>(
      {{3, rc::gen::just<std::int64_t>(1)}, {1, rc::gen::inRange<std::int64_t>(1, 257)}});
  auto& shape = data.distribution;
  shape.shape = static_cast<Shape>(*rc::gen::inRange(0, 6));
  shape.min = *rc::gen::inRange<std::int64_t>(0, data.pack_length + 1);
  shape.max = *rc::gen::inRange<std::int64_t>(shape.min, data.pack_length + 1);
  shape.median = *rc::gen::inRange<std::int64_t>(1, data.pack_length + 1);
  shape.sigma = {*rc::gen::inRange<std::int64_t>(0, 4'000'001)};
  shape.empty = {*rc::gen::inRange<std::int64_t>(0, 1'000'001)};
  shape.fill = {*rc::gen::inRange<std::int64_t>(0, 1'000'001)};
  shape.seed = *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 53);
  const auto source = open_data(scenario);
  const std::int64_t step = *rc::gen::inRange<std::int64_t>(0, 1'000'000);
  const StepData drawn = source->training(step);
  for (const Microbatch& microbatch : drawn.microbatches) {
    std::int64_t rows = 0;
    for (const std::int64_t length : lengths(microbatch)) {
      rows += slot_rows(length, data.gaps, data.align);
      RC_ASSERT(length <= shape.max);
    }
    RC_ASSERT(rows * 1'000'000 <= data.pack_length * shape.fill.millionths);
  }
  RC_ASSERT(drawn.targets == count_targets(drawn));
  RC_ASSERT(same(drawn, open_data(scenario)->training(step)));
  // An evaluation has the layout of its step.
  const StepData evaluation = source->evaluation(step);
  for (std::size_t m = 0; m < drawn.microbatches.size(); ++m) {
    RC_ASSERT(lengths(evaluation.microbatches[m]) == lengths(drawn.microbatches[m]));
  }
}

// Lengths of many packs of a shape, and documents a pack.
struct Sample {
  std::vector<std::int64_t> lengths, documents;
};

Sample sample(const Scenario::Data& data, int packs) {
  Sample sample;
  for (int step = 0; step < packs; ++step) {
    const MicrobatchLengths drawn = drawn_lengths(data, step, 0);
    sample.lengths.insert(sample.lengths.end(), drawn.begin(), drawn.end());
    sample.documents.push_back(std::ssize(drawn));
  }
  std::ranges::sort(sample.lengths);
  std::ranges::sort(sample.documents);
  return sample;
}

Scenario::Data wide(Shape shape) {
  Scenario::Data data;
  data.kind = DataKind::distribution;
  data.pack_length = 8192;
  data.distribution.shape = shape;
  data.distribution.max = 8192;
  return data;
}

TEST(Distribution, MeasuredHasTheMeasuredPercentiles) {
  const Sample packs = sample(wide(Shape::measured), 4000);
  EXPECT_NEAR(static_cast<double>(packs.documents[2000]), 12, 2);
  EXPECT_NEAR(static_cast<double>(packs.documents[3600]), 43, 4);
  EXPECT_NEAR(static_cast<double>(packs.documents[3960]), 106, 25);
  EXPECT_LE(packs.documents.back(), 358);
  EXPECT_GT(packs.documents.back(), 150);
}

// What is published of production packs: 64 places are enough for 96 % of them, 106 for 99 %.
TEST(Distribution, PublishedGoesThroughEveryPublishedPoint) {
  const Sample packs = sample(wide(Shape::published), 40'000);
  const auto covered = [&](std::int64_t documents) {
    const auto fit = std::ranges::upper_bound(packs.documents, documents);
    return static_cast<double>(fit - packs.documents.begin()) /
           static_cast<double>(packs.documents.size());
  };
  EXPECT_NEAR(covered(12), 0.5, 0.03);
  EXPECT_NEAR(covered(43), 0.9, 0.01);
  EXPECT_NEAR(covered(64), 0.96, 0.003);
  EXPECT_NEAR(covered(106), 0.99, 0.002);
  EXPECT_EQ(covered(358), 1);
}

TEST(Distribution, AHistogramIsFollowed) {
  Scenario::Data data = wide(Shape::histogram);
  data.distribution.histogram = {{0, 1}, {7, 5}, {300, 2}};
  const Sample packs = sample(data, 8000);
  const auto share = [&](std::int64_t documents) {
    return static_cast<double>(std::ranges::count(packs.documents, documents)) / 8000;
  };
  EXPECT_NEAR(share(0), 1.0 / 8, 0.02);
  EXPECT_NEAR(share(7), 5.0 / 8, 0.02);
  EXPECT_NEAR(share(300), 2.0 / 8, 0.03);
}

TEST(Distribution, LognormalHasItsMedianAndItsWidth) {
  Scenario::Data data = wide(Shape::lognormal);
  data.pack_length = 1 << 20;
  data.distribution.max = 1 << 20;
  data.distribution.median = 1000;
  data.distribution.sigma = {500'000};
  const Sample packs = sample(data, 10);
  const auto at = [&](double share) {
    return static_cast<double>(
        packs.lengths[static_cast<std::size_t>(share * static_cast<double>(packs.lengths.size()))]);
  };
  EXPECT_NEAR(at(0.5), 1000, 40);
  EXPECT_NEAR(at(0.8413), 1000 * std::exp(0.5), 80);   // One standard deviation up,
  EXPECT_NEAR(at(0.1587), 1000 * std::exp(-0.5), 40);  // and down.
}

TEST(Distribution, UniformReachesBothEnds) {
  Scenario::Data data = wide(Shape::uniform);
  data.distribution.min = 3;
  data.distribution.max = 9;
  data.distribution.fill = {1'000'000};
  const Sample packs = sample(data, 5);
  EXPECT_EQ(packs.lengths.back(), 9);
  EXPECT_EQ(std::set(packs.lengths.begin(), packs.lengths.end()).size(), 7u);
}

TEST(Distribution, FillOfOneFillsThePackExactly) {
  for (const Shape shape :
       {Shape::uniform, Shape::equal, Shape::many_tiny, Shape::one_giant, Shape::lognormal}) {
    Scenario::Data data = wide(shape);
    data.pack_length = 100;
    data.distribution.max = 32;
    data.distribution.fill = {1'000'000};
    for (int step = 0; step < 20; ++step) {
      std::int64_t rows = 0;
      for (const std::int64_t length : drawn_lengths(data, step, 0)) rows += length;
      EXPECT_EQ(rows, 100) << static_cast<int>(shape);
    }
  }
}

TEST(Distribution, OneGiantIsAloneAndMovesAbout) {
  Scenario::Data data = wide(Shape::one_giant);
  data.pack_length = 128;
  data.distribution.max = 80;
  data.distribution.fill = {1'000'000};
  std::set<std::ptrdiff_t> places;
  for (int step = 0; step < 50; ++step) {
    const MicrobatchLengths drawn = drawn_lengths(data, step, 0);
    EXPECT_EQ(std::ranges::count(drawn, 80), 1);
    EXPECT_EQ(std::ranges::count_if(drawn, [](std::int64_t length) { return length > 10; }), 1);
    places.insert(std::ranges::find(drawn, 80) - drawn.begin());
  }
  EXPECT_GT(places.size(), 3u);
}

TEST(Distribution, EmptyDocumentsHaveTheirShare) {
  Scenario::Data data = wide(Shape::equal);
  data.distribution.max = 8;
  data.distribution.empty = {500'000};
  const Sample packs = sample(data, 4);
  const auto empty = static_cast<double>(std::ranges::count(packs.lengths, 0));
  EXPECT_NEAR(empty / static_cast<double>(packs.lengths.size()), 0.5, 0.03);
}

// The values stand here so that a change of a shape, on any machine, is seen.
TEST(Distribution, DrawsAreTheSameEverywhere) {
  const auto first = [](Shape shape) {
    Scenario::Data data = wide(shape);
    data.pack_length = 64;
    data.distribution.max = 32;
    return drawn_lengths(data, 5, 1);
  };
  EXPECT_EQ(first(Shape::uniform), (MicrobatchLengths{13, 31, 13}));
  EXPECT_EQ(first(Shape::lognormal), (MicrobatchLengths{17, 32, 8}));
  EXPECT_EQ(first(Shape::measured), (MicrobatchLengths{11, 28, 16, 2}));
}

}  // namespace
}  // namespace lockstep
