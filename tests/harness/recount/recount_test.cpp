// The recount of documents: rows computed by hand, every shape of a distribution against the data
// source, and planted faults.
#include "harness/recount/recount.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "harness/inject/document_fault.h"
#include "harness/recount/layout.h"
#include "harness/run/suite.h"
#include "harness/run/worker.h"
#include "kernels/core/at.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tree.h"

namespace lockstep::recount {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::int32_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

// A scenario of one microbatch a step that reads the files of `folder`.
Scenario reading(const TemporaryFolder& folder, DataKind kind, const std::string& path) {
  Scenario scenario;
  scenario.folder = folder.path();
  scenario.model.vocab = 256;
  scenario.data.kind = kind;
  scenario.data.path = path;
  scenario.data.pack_length = 8;
  scenario.data.long_documents = LongDocuments::split;
  scenario.training.microbatches = 1;
  return scenario;
}

TEST(Recount, RowsHaveGapsAlignmentAndNoPaddingTokens) {
  Scenario::Data data;
  data.pack_length = 12;
  data.gaps = 1;
  data.align = 4;
  const Microbatch microbatch{{{0, {5, 6}, {6, -1}}, {1, {}, {}}, {2, {7, 8, 9}, {8, 9, -1}}}};
  const PackRows rows = rows_of(data, microbatch);
  EXPECT_THAT(rows.token, ElementsAre(5, 6, -1, -1, 7, 8, 9, -1, -1, -1, -1, -1));
  EXPECT_THAT(rows.target, ElementsAre(6, -1, -1, -1, 8, 9, -1, -1, -1, -1, -1, -1));
  EXPECT_THAT(rows.document, ElementsAre(0, 0, -1, -1, 2, 2, 2, -1, -1, -1, -1, -1));
  EXPECT_THAT(rows.position, ElementsAre(0, 1, -1, -1, 0, 1, 2, -1, -1, -1, -1, -1));
  EXPECT_EQ(longest_document(data), 11);
  data.pack_length = 15;
  EXPECT_EQ(longest_document(data), 11);
}

// "abcdefghij" is cut behind "h"; "kl" and "mnopqr" follow in the order of their paths.
TEST(Recount, PiecesArePackedNextFitAndReadInTurn) {
  const TemporaryFolder folder;
  folder.file("texts/a", "abcdefghij");
  folder.file("texts/b/c", "kl");
  folder.file("texts/b-d", "mnopqr");
  Scenario scenario = reading(folder, DataKind::text, "texts");
  {
    const Recount recount(scenario);
    EXPECT_EQ(recount.training(0).microbatches[0].documents[0].tokens, bytes("abcdefgh"));
    const StepData second = recount.training(1);
    const std::vector<Document>& documents = at(second.microbatches, 0).documents;
    ASSERT_EQ(documents.size(), 2);
    EXPECT_EQ(documents[0].tokens, bytes("ij"));
    EXPECT_THAT(documents[0].targets, ElementsAre('j', -1));
    EXPECT_EQ(documents[1].tokens, bytes("mnopqr"));
    EXPECT_EQ(documents[1].number, 1);
    EXPECT_EQ(second.targets, 6);
    EXPECT_EQ(recount.training(2).microbatches[0].documents[0].tokens, bytes("kl"));
    EXPECT_EQ(recount.training(3).microbatches[0].documents[0].tokens, bytes("abcdefgh"));
  }
  scenario.data.mask.document_end = false;
  scenario.data.mask.prefix = 6;
  scenario.training.eval_every = 1;
  const Recount recount(scenario);
  EXPECT_THAT(recount.training(0).microbatches[0].documents[0].targets,
              ElementsAre(-1, -1, -1, -1, -1, -1, 'h', 'i'));
  // The last of three packs is kept.
  EXPECT_EQ(recount.training(2).microbatches[0].documents[0].tokens, bytes("abcdefgh"));
  EXPECT_EQ(recount.evaluation(0).microbatches[0].documents[0].tokens, bytes("kl"));
  EXPECT_EQ(recount.evaluation(1).microbatches[0].documents[0].tokens, bytes("kl"));
}

TEST(Recount, OnlyContentsOfTheRolesAreTargets) {
  const TemporaryFolder folder;
  folder.file("chat.jsonl", R"({"messages": [{"role": "u", "content": "x"}, )"
                            R"({"role": "a", "content": "yz"}]})"
                            "\n{\"text\": \"pq\"}");
  Scenario scenario = reading(folder, DataKind::jsonl, "chat.jsonl");
  scenario.data.pack_length = 32;
  scenario.data.mask.roles = {"a"};
  const StepData step = Recount(scenario).training(0);
  const std::vector<Document>& documents = at(step.microbatches, 0).documents;
  ASSERT_EQ(documents.size(), 2);
  EXPECT_EQ(documents[0].tokens, bytes("u: x\na: yz\n"));
  EXPECT_THAT(documents[0].targets, ElementsAre(-1, -1, -1, -1, -1, -1, -1, 'y', 'z', -1, -1));
  EXPECT_THAT(documents[1].targets, ElementsAre('q', -1));
}

// Each shape by itself: random scenarios seldom draw the rare corners of these.
TEST(Recount, AgreesWithTheSourceOnEveryDistribution) {
  for (const Shape shape :
       {Shape::uniform, Shape::lognormal, Shape::equal, Shape::one_giant, Shape::many_tiny,
        Shape::measured, Shape::published, Shape::histogram}) {
    for (std::int64_t seed = 0; seed < 40; ++seed) {
      Scenario scenario;
      Scenario::Data& data = scenario.data;
      data.kind = DataKind::distribution;
      data.pack_length = 64 + 48 * seed;
      data.align = 1 + seed % 5;
      data.gaps = seed % 3;
      data.distribution.shape = shape;
      if (shape == Shape::histogram)
        data.distribution.histogram = {{seed % 3, 1 + seed}, {5, 1}, {9 + seed, 4}};
      data.distribution.seed = seed;
      data.distribution.min = seed % 4;
      data.distribution.max = 8 + seed * 16;
      data.distribution.median = 1 + seed;
      data.distribution.sigma = {seed * 100'000};
      data.distribution.empty = {seed % 3 * 100'000};
      data.mask.rate = {seed * 20'000};
      const Recount recount(scenario);
      const auto source = open_data(scenario);
      for (std::int64_t step = 0; step < 3; ++step) {
        EXPECT_EQ(difference(scenario, recount.training(step), source->training(step)), "");
        EXPECT_EQ(difference(scenario, recount.evaluation(step), source->evaluation(step)), "");
      }
    }
  }
}

TEST(Recount, NamesTheFirstRowThatDiffers) {
  const Scenario scenario;
  const StepData want = Recount(scenario).training(0);
  StepData got = want;
  std::int32_t& target = at(got.microbatches, 1).documents[2].targets[4];
  const std::string right = std::to_string(target);
  target = -1;
  EXPECT_EQ(difference(scenario, want, got),
            "global microbatch 1, document 2: row 4: target -1, not " + right);
  got = want;
  ++got.targets;
  EXPECT_THAT(difference(scenario, want, got), HasSubstr("targets "));
  got = want;
  got.microbatches.pop_back();
  EXPECT_EQ(difference(scenario, want, got), "microbatches 1, not 2");
}

// A scenario of the library for each fault of documents. Every other judge is content there.
TEST(Recount, FindsThePlantedFaults) {
  const std::vector<std::pair<std::string, std::string>> shown{
      {"documents-end-at-their-piece", "chat"},
      {"documents-mask-a-row-less", "mask-prefix-and-rate"},
      {"documents-mask-no-microbatch", "masked-microbatch"},
      {"documents-mask-no-role", "chat"},
      {"documents-mask-no-share", "mask-prefix-and-rate"},
      {"documents-numbered-by-microbatch", "edge-lengths"},
      {"documents-of-another-distribution", "many-tiny"},
      {"documents-of-another-seed", "edge-lengths"},
      {"evaluation-of-the-first-step", "step-without-targets"},
      {"evaluation-on-documents-of-training", "chat"},
      {"packs-before-a-change-counted-anew", "chat-behind-a-change"},
      {"packs-counted-as-measured", "published-packs"},
      {"packs-forget-the-smallest-count", "histogram-packs"},
      {"targets-are-their-own-tokens", "edge-lengths"},
      {"training-on-documents-of-evaluations", "chat"}};
  std::vector<std::string> names;
  for (const auto& [fault, scenario] : shown) {
    names.push_back(fault);
    std::vector<ScenarioError> errors;
    const std::vector<PlannedCase> cases =
        plan_file(root_path() + "/scenarios/library/packing/" + scenario + ".yaml", true, errors);
    ASSERT_FALSE(cases.empty()) << scenario;
    RunOptions options;
    options.planted.engine = fault;
    const CaseResult result =
        run_in_worker(cases.front().scenario, options, {.fork = true, .timeout_s = 60});
    EXPECT_EQ(result.judge, JudgeKind::documents) << fault << ": " << result.reason;
  }
  EXPECT_EQ(names, document_faults());
}

}  // namespace
}  // namespace lockstep::recount
