// Random scenarios on engines that honour little are left with what these honour, legal, and
// the same when it is projected once more.
#include "harness/foreign/projection.h"

#include <gtest/gtest.h>

#include "harness/generate/case.h"
#include "scenarios/io/reader.h"
#include "scenarios/rules/check.h"
#include "scenarios/schema/schema.h"

namespace lockstep {
namespace {

namespace json = boost::json;

const json::object& little() {
  static const json::object honours{
      {"numerics", {"bf16"}},
      {"model.pattern", {{"symbols", "*-"}, {"max", 2}}},
      {"model.hidden", {{"min", 16}, {"max", 64}, {"multiple_of", 16}}},
      {"model.vocab", true},
      {"cuda_graph.impl", {"none", "partial"}},
      {"cuda_graph.modules", {"attn"}},
      {"cuda_graph.max_packed_seqs", {{"min", 2}, {"max", 9}, {"items", 2}}},
      {"offload.modules", {"core_attn"}},
      {"data.pack_length", true},
      {"training.microbatches", true}};
  return honours;
}

json::value value_of(const char* key, const Scenario& scenario) {
  return json::parse(find_key(key)->write(scenario, Style::json));
}

TEST(Projection, LeavesWhatIsHonoured) {
  int projected = 0;
  for (std::int64_t index = 0; index < 150; ++index) {
    const Scenario given = make_case(5, index, "small").scenario;
    const foreign::Projection first = foreign::project(given, little());
    if (!first.scenario) {
      EXPECT_FALSE(first.why_not.empty());
      continue;
    }
    ++projected;
    const Scenario& left = *first.scenario;
    EXPECT_TRUE(check_legality(left).empty()) << to_yaml(left);
    const ReadResult read = read_scenario_text(to_full_yaml(left), "x.yaml");  // As a token is.
    EXPECT_TRUE(read.ok()) << text_of(read.errors);
    EXPECT_EQ(value_of("numerics", left), json::value({"bf16"}));
    EXPECT_EQ(left.model.pattern.find_first_not_of("*-"), std::string::npos);
    EXPECT_LE(left.model.pattern.size(), 2u);
    EXPECT_EQ(left.model.hidden % 16, 0) << left.model.hidden;
    EXPECT_EQ(left.parallel.data, 1);
    EXPECT_EQ(left.training.in_flight, 1);
    EXPECT_EQ(left.training.optimizer.clip, 0);
    EXPECT_EQ(left.model.dropout.millionths, 0);
    EXPECT_LE(left.cuda_graph.max_packed_seqs.size(), 2u);
    EXPECT_FALSE(first.changes.empty());
    const foreign::Projection again = foreign::project(left, little());
    ASSERT_TRUE(again.scenario);
    EXPECT_EQ(canonical_form(*again.scenario), canonical_form(left));
    EXPECT_TRUE(again.changes.empty()) << again.changes.front().key;
  }
  EXPECT_GT(projected, 100);
}

TEST(Projection, ChangesNothingWhereAllIsHonoured) {
  json::object all{{"feed.empty_documents", true},
                   {"feed.empty_packs", true},
                   {"run.resume_on_other_ranks", true}};
  for (const Key& key : schema()) all[key.path] = true;
  for (std::int64_t index = 0; index < 50; ++index) {
    const Scenario given = make_case(6, index, "small").scenario;
    const foreign::Projection projection = foreign::project(given, all);
    ASSERT_TRUE(projection.scenario) << projection.why_not;
    EXPECT_TRUE(projection.changes.empty()) << projection.changes.front().key;
  }
}

// Offload beside a graph of a whole step needs a bound of copies under way, which this engine does
// not honour.
TEST(Projection, LeavesOffloadOutWhereItsRuleAsksForMoreThanIsHonoured) {
  const json::object honours{{"numerics", {"fp32"}},
                             {"model.pattern", {{"symbols", "-"}}},
                             {"offload.modules", {"mlp_fc1"}},
                             {"cuda_graph.impl", {"none", "full_iteration"}}};
  const Scenario given =
      read_scenario_text(
          "schema: 1\nname: a\nnumerics: [fp32]\nmodel: {pattern: \"--\"}\n"
          "cuda_graph: {impl: full_iteration}\noffload: {modules: [mlp_fc1], max_inflight: 1}\n",
          "x.yaml")
          .scenario;
  const foreign::Projection projection = foreign::project(given, honours);
  ASSERT_TRUE(projection.scenario) << projection.why_not;
  EXPECT_TRUE(projection.scenario->offload.modules.empty());
  EXPECT_EQ(projection.scenario->cuda_graph.impl, GraphImpl::full_iteration);
}

// Ranks of a resume stay where the engine does not change them, and what a file expects of counters
// holds for the file as it stands alone.
TEST(Projection, ResumesAndExpectations) {
  json::object honours{{"feed.empty_documents", true}, {"feed.empty_packs", true}};
  for (const Key& key : schema()) honours[key.path] = true;
  const Scenario given =
      read_scenario_text(
          "schema: 1\nname: a\ntraining: {microbatches: 2, resume_at: [{step: 1, data: 1}]}\n"
          "fsdp: {strategy: optim_grads}\nparallel: {data: 2}\n"
          "expect: {counters: {resumes: 1}}\n",
          "x.yaml")
          .scenario;
  foreign::Projection projection = foreign::project(given, honours);
  ASSERT_TRUE(projection.scenario) << projection.why_not;
  ASSERT_EQ(projection.changes.size(), 1u);
  EXPECT_EQ(projection.changes.front().key, "training.resume_at");
  EXPECT_EQ(value_of("training.resume_at", *projection.scenario), json::parse(R"([{"step": 1}])"));
  EXPECT_TRUE(projection.scenario->expect.counters.empty());
  honours["run.resume_on_other_ranks"] = true;
  projection = foreign::project(given, honours);
  ASSERT_TRUE(projection.scenario) << projection.why_not;
  EXPECT_TRUE(projection.changes.empty());
  EXPECT_TRUE(projection.scenario->expect.counters.contains(Counter::resumes));
}

}  // namespace
}  // namespace lockstep
