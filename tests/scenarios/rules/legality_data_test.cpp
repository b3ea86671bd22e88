// Why no step has a target, and what the bytes at data.path have to do with rules.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/io/reader.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using Advice = std::vector<std::pair<std::string, std::string>>;

// The refusals, and all that has to change for it to be legal.
TEST(LegalityOfData, EveryCauseOfNoTargetIsNamed) {
  const std::vector<std::pair<std::function<void(Scenario&)>, Advice>> cases{
      {[](Scenario& s) { s.data.mask.prefix = 64, s.data.mask.rate = {1'000'000}; },
       {{"data.mask.prefix", "62"}, {"data.mask.rate", "0"}}},
      {[](Scenario& s) {
         s.data.documents = {{{1, 1}}}, s.data.mask.prefix = 9;
       },
       {{"data.mask.prefix", "0"}, {"data.documents", "[[[2]]]"}}},
      {[](Scenario& s) {
         s.data.documents = {{{1}}}, s.data.pack_length = s.data.distribution.median = 1;
       },
       {{"data.pack_length", "2"}, {"data.documents", "[[[2]]]"}}},
      {[](Scenario& s) {
         s.data.kind = DataKind::distribution, s.data.distribution.max = 1,
         s.data.mask.rate = {1'000'000};
         s.cuda_graph.impl = GraphImpl::none;
       },
       {{"data.mask.rate", "0"}, {"data.distribution.max", "2"}}},
      {[](Scenario& s) {
         s.data.kind = DataKind::distribution, s.data.pack_length = 2,
         s.data.distribution.median = 2;
         s.cuda_graph.impl = GraphImpl::none;
       },
       {{"data.distribution.fill", "1"}}},
  };
  for (const auto& [edit, advice] : cases) {
    Scenario scenario;
    edit(scenario);
    Advice got;
    for (const ScenarioError& error : check_legality(scenario)) {
      EXPECT_EQ(error.rule, "L12");
      got.emplace_back(error.key, error.nearest);
    }
    EXPECT_EQ(got, advice);
  }
}

// Bytes are judged as they lie there: too long, too short for a target, too few for training and
// evaluation.
TEST(LegalityOfData, BytesAreReadForTheRulesOnDocuments) {
  const TemporaryFolder folder;
  Scenario scenario;
  scenario.model.vocab = 256;
  scenario.data.kind = DataKind::jsonl;
  scenario.data.path = folder.file("a.jsonl", R"({"text": "abcdefgh"})");
  scenario.data.long_documents = LongDocuments::error;
  const auto rule = [&](const std::function<void(Scenario&)>& edit) {
    Scenario other = scenario;
    edit(other);
    const auto errors = check_legality(other);
    return errors.empty() ? "none" : errors.front().rule;
  };
  EXPECT_EQ(rule([](Scenario& s) { s.data.pack_length = 8; }), "none");
  EXPECT_EQ(rule([](Scenario& s) { s.data.pack_length = 7; }), "L07");
  EXPECT_EQ(rule([](Scenario& s) { s.data.pack_length = 8, s.data.gaps = 1; }), "L08");
  EXPECT_EQ(rule([](Scenario& s) {
              s.data.pack_length = 7, s.data.distribution.median = 7,
              s.data.long_documents = LongDocuments::split;
            }),
            "none");
  EXPECT_EQ(rule([](Scenario& s) { s.data.mask.prefix = 6; }), "none");
  EXPECT_EQ(rule([](Scenario& s) { s.data.mask.prefix = 7; }), "L12");
  scenario.training.eval_every = 1;
  const auto errors = check_legality(scenario);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].rule, "L12");
  EXPECT_EQ(errors[0].key, "training.eval_every");
  scenario.data.path =
      folder.file("b.jsonl", R"({"messages": [{"role": "user", "content": "abc"}]})");
  EXPECT_EQ(check_legality(scenario).front().key, "data.mask.roles");
  scenario.data.path = folder.file("c.jsonl", R"({"text": "a"})");
  EXPECT_EQ(check_legality(scenario).front().key, "data.path");
}

}  // namespace
}  // namespace lockstep
