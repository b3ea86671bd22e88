// Every rule refuses its example, as the lowest rule that does, and accepts the nearest legal value
// that it names.
#include "scenarios/rules/legality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "scenarios/io/reader.h"
#include "tests/scenarios/rules/legality_examples.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

std::string rule_of(const std::vector<ScenarioError>& errors) {
  return errors.empty() ? "none" : errors.front().rule;
}

std::string lowest_rule(const Scenario& scenario) { return rule_of(check_legality(scenario)); }

Scenario edited(const Edit& edit) {
  Scenario scenario;
  edit(scenario);
  return scenario;
}

TEST(Legality, EveryRuleRefusesItsExampleAndAcceptsTheNearestLegalValue) {
  for (const Example& example : examples()) {
    SCOPED_TRACE(example.rule + " " + example.key);
    Scenario scenario = edited(example.illegal);
    const auto errors = check_legality(scenario);
    ASSERT_FALSE(errors.empty());
    EXPECT_EQ(errors.front().rule, example.rule);
    EXPECT_EQ(errors.front().key, example.key);
    EXPECT_EQ(errors.front().nearest, example.nearest);
    example.legal(scenario);
    EXPECT_EQ(lowest_rule(scenario), "none");
  }
}

// Files in which one key is not enough, or in which the nearest value of one rule is another's
// business.
TEST(Legality, AllAdviceTogetherIsLegal) {
  const std::vector<std::pair<Edit, std::vector<std::pair<std::string, std::string>>>> cases{
      {[](Scenario& s) { s.model.mamba.d_inner = 60, s.model.mamba.groups = 3; },
       {{"model.mamba.d_inner", "64"}, {"model.mamba.groups", "2"}}},
      {[](Scenario& s) {
         s.numerics = {Numerics::bf16};
         s.model.mamba.d_inner = s.model.mamba.head_dim = 100;
       },
       {{"model.mamba.d_inner", "96"}, {"model.mamba.head_dim", "96"}}},
      {[](Scenario& s) {
         one_pack(s, {3, 1000000});
       },
       {{"data.documents[0][0]", "[3, 61]"}}},
      {[](Scenario& s) { one_pack(s, {65}), s.data.gaps = 2; }, {{"data.documents[0][0]", "[62]"}}},
      {[](Scenario& s) { one_pack(s, {2}), s.data.align = 256; }, {{"data.align", "64"}}},
      {[](Scenario& s) {
         one_pack(s, {3, 5}), s.data.gaps = 70;
       },
       {{"data.gaps", "28"}}},
      {[](Scenario& s) {
         one_pack(s, {3});
         s.data.kind = DataKind::text, s.data.path = "texts", s.model.vocab = 256;
       },
       {{"data.documents", "[[[17, 1, 0, 30], [5, 16, 33]], [[64], [3, 4, 20, 15, 9]]]"}}},
      {[](Scenario& s) {
         s.data.kind = DataKind::distribution;
         s.data.distribution.empty = {1'000'000};
         s.cuda_graph.impl = GraphImpl::none;
       },
       {{"data.distribution.empty", "0"}}},
      {[](Scenario& s) {
         s.data.kind = DataKind::distribution, s.data.distribution.max = 1;
         s.cuda_graph.impl = GraphImpl::none;
       },
       {{"data.distribution.max", "2"}}},
      {[](Scenario& s) {
         s.model.pattern = "*E";
         s.model.moe.pad_to_capacity = false, s.model.moe.host_sync = true;
       },
       {{"model.moe.host_sync", "false"}}},
      {[](Scenario& s) {
         s.expect.verdict = ExpectedVerdict::refused, s.expect.error = "L17",
         s.expect.judge = "hazard";
       },
       {{"expect.judge", "none"}}},
      {[](Scenario& s) { s.expect.error = "L17", s.expect.counters[Counter::ops].min = 1; },
       {{"expect.error", "none"}}},
  };
  for (const auto& [edit, advice] : cases) {
    std::vector<std::pair<std::string, std::string>> got;
    for (const ScenarioError& error : check_legality(edited(edit)))
      got.emplace_back(error.key, error.nearest);
    EXPECT_EQ(got, advice);
  }
}

// 65,536 microbatches of a million documents each: what is not seen at once is left to the run.
TEST(Legality, IsDecidedAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(lowest_rule(edited([](Scenario& s) {
              s.training.steps = 1'000'000, s.training.microbatches = 1024, s.parallel.data = 64;
              s.data.kind = DataKind::distribution, s.data.pack_length = 1 << 20;
              s.data.distribution.shape = Shape::many_tiny;
              s.cuda_graph.max_packed_seqs = {1};
            })),
            "none");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Legality, EveryRuleHasAnExample) {
  std::set<std::string> rules;
  for (const Example& example : examples()) rules.insert(example.rule);
  for (int i = 1; i <= 56; ++i) {
    const std::string rule = (i < 10 ? "L0" : "L") + std::to_string(i);
    EXPECT_TRUE(rules.contains(rule)) << rule;
  }
}

TEST(Legality, DefaultsAreLegalAndBuilt) {
  EXPECT_EQ(lowest_rule(Scenario{}), "none");
  EXPECT_EQ(rule_of(check_built(Scenario{})), "none");
}

TEST(Legality, LowestRuleComesFirst) {
  const auto errors = check_legality(edited([](Scenario& s) {
    s.checker.schedule = {ScheduleKind::program, 1, 1, 2};
    s.training.in_flight = 9;
    s.model.attention.kv_heads = 3;
  }));
  std::vector<std::string> rules;
  for (const ScenarioError& error : errors) rules.push_back(error.rule);
  EXPECT_THAT(rules, ElementsAre("L01", "L13", "L39"));
}

TEST(Legality, WidthsOfAbsentLayersAndMachinerySwitchedOffAreNoRequests) {
  EXPECT_EQ(lowest_rule(edited([](Scenario& s) {
              s.model.pattern = "-";
              s.model.attention.kv_heads = 3;
              s.model.mamba.d_inner = 61;
              s.model.moe.top_k = 16;
              s.model.moe.host_sync = true;
              s.offload.delay_until_cuda_graph = true;
              s.fsdp.double_buffer = false;
              s.fsdp.unit = {9, 9};
              s.fsdp.unit_is_list = true;
            })),
            "none");
}

// L26, per tensor and region: which residual streams lie inside of one graph.
TEST(Legality, NormsAreOffloadedOnlyWhereTheirInputIsInsideOfAGraphOrEager) {
  using enum GraphModule;
  using enum OffloadModule;
  const auto rule = [](const char* pattern, OffloadModule module, std::vector<GraphModule> graphs) {
    return lowest_rule(edited([&](Scenario& s) { offload(s, pattern, {module}, graphs); }));
  };
  EXPECT_EQ(rule("*-", mlp_norm, {attn, mlp}), "none");
  EXPECT_EQ(rule("*-", mlp_norm, {}), "none");
  EXPECT_EQ(rule("*-", mlp_norm, {mlp}), "L26");
  EXPECT_EQ(rule("*-", mlp_norm, {attn}), "L26");  // The output of attention's graph.
  EXPECT_EQ(rule("*-", attn_norm, {attn, mlp}), "L26");
  EXPECT_EQ(rule("*-", attn_norm, {mlp}), "none");
  EXPECT_EQ(rule("*-*-", attn_norm, {mlp}),
            "L26");  // The second one reads what the first block's graph wrote.
  EXPECT_EQ(rule("*E", mlp_norm, {attn, moe}), "none");
  EXPECT_EQ(rule("*E", mlp_norm, {attn, moe_router}),
            "L26");  // Eager experts add to it after the graph.
  EXPECT_EQ(rule("M*", attn_norm, {mamba}), "L26");
  EXPECT_EQ(rule("*-M-", mlp_norm, {attn, mlp}), "L26");  // For two blocks the lone one fails.
  EXPECT_EQ(rule("M-", mlp_norm, {}), "L26");
  EXPECT_EQ(rule("M*-", core_attn, {}), "none");
  EXPECT_EQ(rule("M*-", mamba_scan, {mamba}), "none");
  Scenario eager = edited([](Scenario& s) { offload(s, "M*-", {attn_norm, mlp_norm}); });
  eager.cuda_graph.impl = GraphImpl::none;
  EXPECT_EQ(lowest_rule(eager), "none");
}

TEST(Legality, ExampleOfHalfOffloadedExpertsIsLegal) {
  using enum GraphModule;
  using enum OffloadModule;
  Scenario scenario = edited([](Scenario& s) {
    offload(s, "*E*E", {qkv_linear, core_attn, expert_fc1, moe_act},
            {attn, moe_router, moe_preprocess});
    s.offload.delay_until_cuda_graph = true;
  });
  EXPECT_EQ(lowest_rule(scenario), "none");
}

TEST(Legality, ReplaysMayBeExpectedToBeNone) {
  Scenario scenario = edited([](Scenario& s) {
    s.cuda_graph.max_packed_seqs = {1}, s.data.documents = {{{3, 4}}};
  });
  EXPECT_EQ(lowest_rule(scenario), "L23");
  scenario.expect.counters[Counter::graph_replays] = {0, 0, {}};
  EXPECT_EQ(lowest_rule(scenario), "none");
  scenario.expect.counters[Counter::graph_replays] = {1, {}, {}};
  EXPECT_EQ(lowest_rule(scenario), "L23");
  scenario.expect.counters[Counter::graph_replays] = {{}, {}, Counter::ops};
  EXPECT_EQ(lowest_rule(scenario), "L23");
}

TEST(Legality, DummySlotCountsAgainstTheBuckets) {
  Scenario scenario = edited([](Scenario& s) {
    s.cuda_graph.max_packed_seqs = {2}, s.data.documents = {{{3, 4}}};
  });
  EXPECT_EQ(lowest_rule(scenario), "none");
  scenario.data.tail = Tail::append_dummy_seq;
  EXPECT_EQ(lowest_rule(scenario), "L23");
}

TEST(Legality, OneRankMayShardAndEqualUnitsFitThePool) {
  Scenario scenario = edited([](Scenario& s) {
    shard(s), s.model.pattern = "M*-M*-", s.fsdp.unit = {2},
              s.fsdp.persist_buf_on_alloc_fail = false;
  });
  EXPECT_EQ(lowest_rule(scenario), "none");
  scenario.fsdp.unit = {1};
  EXPECT_EQ(lowest_rule(scenario), "L33");
}

}  // namespace
}  // namespace lockstep
