// Each rule on ranks and shards refuses what it is about, and nothing that differs in one of its
// conditions.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "scenarios/io/reader.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

using Edit = std::function<void(Scenario&)>;

struct RuleRow {
  std::vector<Edit> refused;   // From the defaults.
  std::vector<Edit> accepted;  // The first refused one and then this.
};

void shard(Scenario& s, Sharding strategy = Sharding::optim_grads_params) {
  s.fsdp.strategy = strategy;
}
void eager(Scenario& s) { s.cuda_graph.impl = GraphImpl::none; }
void whole_step(Scenario& s) { s.cuda_graph.impl = GraphImpl::full_iteration; }
void unsharded(Scenario& s) { s.fsdp.strategy = Sharding::no_shard; }
void without_fallback(Scenario& s, const char* pattern) {
  shard(s), s.model.pattern = pattern, s.fsdp.persist_buf_on_alloc_fail = false;
}
void delay(Scenario& s, DelayStream stream, std::optional<std::int64_t> rank = {}) {
  s.checker.delays = {{.stream = stream, .rank = rank, .spin = 1}};
}

const std::map<std::string, RuleRow>& rows() {
  static const std::map<std::string, RuleRow> table{
      {"L32",
       {{[](Scenario& s) { shard(s), s.fsdp.double_buffer = false; },
         [](Scenario& s) { shard(s, Sharding::optim), s.fsdp.double_buffer = false; },
         [](Scenario& s) { shard(s, Sharding::optim_grads), s.fsdp.double_buffer = false; },
         [](Scenario& s) {
           shard(s), s.fsdp.double_buffer = false, s.cuda_graph.modules = {GraphModule::attn};
         }},
        {[](Scenario& s) { s.fsdp.double_buffer = true; }, eager, whole_step, unsharded}}},
      {"L33",
       {{[](Scenario& s) { without_fallback(s, "M*-M*"); },
         [](Scenario& s) { without_fallback(s, "MMM"), s.fsdp.unit = {2}; },
         [](Scenario& s) {
           without_fallback(s, "MMM"), s.fsdp.unit = {1, 2}, s.fsdp.unit_is_list = true;
         },
         [](Scenario& s) { without_fallback(s, "M*"), shard(s, Sharding::optim); }},
        {[](Scenario& s) { s.fsdp.persist_buf_on_alloc_fail = true; },
         [](Scenario& s) { s.model.pattern = "MMM"; },
         [](Scenario& s) { s.model.pattern = "M*-M*-", s.fsdp.unit = {2}; },
         [](Scenario& s) { s.fsdp.unit = {4}; }, eager, whole_step, unsharded}}},
      {"L34",
       {{[](Scenario& s) { without_fallback(s, "MMM"), s.fsdp.prefetch = 2; },
         [](Scenario& s) { without_fallback(s, "MMM"), s.fsdp.prefetch = 2, eager(s); }},
        {[](Scenario& s) { s.fsdp.prefetch = 1; }, [](Scenario& s) { s.fsdp.prefetch = 0; },
         [](Scenario& s) { s.fsdp.persist_buf_on_alloc_fail = true; },
         [](Scenario& s) { eager(s), s.fsdp.double_buffer = false; }, unsharded}}},
      {"L35",
       {{[](Scenario& s) {
           shard(s), s.fsdp.unit = {1, 2}, s.fsdp.unit_is_list = true;
         },
         [](Scenario& s) { shard(s), s.fsdp.unit = {1}, s.fsdp.unit_is_list = true; }},
        {[](Scenario& s) {
           s.fsdp.unit = {1, 1};
         },
         [](Scenario& s) { s.fsdp.unit = {2}; },
         [](Scenario& s) { s.fsdp.unit = {9}, s.fsdp.unit_is_list = false; }, unsharded}}},
      {"L36",
       {{[](Scenario& s) { s.parallel.data = 2, s.fsdp.reduction = Reduction::nccl; },
         [](Scenario& s) { shard(s), s.fsdp.reduction = Reduction::nccl; },
         [](Scenario& s) {
           s.parallel.data = 2, s.fsdp.reduction = Reduction::nccl,
           s.parallel.transport = Transport::shm;
         }},
        {[](Scenario& s) { s.parallel.transport = Transport::nccl; },
         [](Scenario& s) { s.fsdp.reduction = Reduction::ordered; },
         [](Scenario& s) { s.parallel.data = 1; }}}},
      {"L37",
       {{[](Scenario& s) { s.parallel.data = 2, whole_step(s); },
         [](Scenario& s) {
           s.parallel.data = 2, whole_step(s), s.parallel.transport = Transport::local;
         }},
        {[](Scenario& s) { s.parallel.transport = Transport::shm; },
         [](Scenario& s) { s.parallel.transport = Transport::nccl; },
         [](Scenario& s) { s.parallel.data = 1; },
         [](Scenario& s) { s.cuda_graph.impl = GraphImpl::partial; }, eager}}},
      {"L38",
       {{[](Scenario& s) { delay(s, DelayStream::gather); },
         [](Scenario& s) { delay(s, DelayStream::reduce); },
         [](Scenario& s) { delay(s, DelayStream::d2h); },
         [](Scenario& s) { delay(s, DelayStream::h2d); },
         [](Scenario& s) { delay(s, DelayStream::graph), eager(s); },
         [](Scenario& s) { delay(s, DelayStream::compute, 1); },
         [](Scenario& s) { s.parallel.data = 2, delay(s, DelayStream::compute, 2); }},
        {[](Scenario& s) { shard(s); }, [](Scenario& s) { s.parallel.data = 2; },
         [](Scenario& s) { delay(s, DelayStream::compute, 0); },
         [](Scenario& s) { delay(s, DelayStream::graph); },
         [](Scenario& s) { s.parallel.data = 2, delay(s, DelayStream::reduce, 1); },
         [](Scenario& s) {
           delay(s, DelayStream::d2h), s.offload.modules = {OffloadModule::qkv_linear};
         }}}},
  };
  return table;
}

std::string lowest_rule(const Scenario& scenario) {
  const auto errors = check_legality(scenario);
  return errors.empty() ? "none" : errors.front().rule;
}

TEST(ShardingRules, EachHasWhatItRefusesAndWhatItAccepts) {
  std::set<std::string> rules{"L38"};
  for (const Rule& rule : sharding_rules()) rules.insert(rule.id.text);
  for (const std::string& rule : rules) {
    SCOPED_TRACE(rule);
    ASSERT_TRUE(rows().contains(rule));
    EXPECT_FALSE(rows().at(rule).refused.empty());
    EXPECT_FALSE(rows().at(rule).accepted.empty());
  }
}

TEST(ShardingRules, RefuseWhatTheyAreAbout) {
  for (const auto& [rule, row] : rows()) {
    for (std::size_t i = 0; i < row.refused.size(); ++i) {
      Scenario s;
      row.refused[i](s);
      EXPECT_EQ(lowest_rule(s), rule) << "example " << i;
    }
  }
}

TEST(ShardingRules, AcceptWhatDiffersInOneCondition) {
  for (const auto& [rule, row] : rows()) {
    for (std::size_t i = 0; i < row.accepted.size(); ++i) {
      Scenario s;
      row.refused.front()(s);
      row.accepted[i](s);
      EXPECT_EQ(lowest_rule(s), "none") << rule << ", example " << i;
    }
  }
}

// Keys of docs/scenario-reference.md that are refused until they are built, by their key and after
// all others.
TEST(ShardingRules, WhatIsNotBuiltIsRefusedByItsKey) {
  const std::map<std::string, Edit> asks{
      {"fsdp.nccl_ub", [](Scenario& s) { s.fsdp.nccl_ub = true; }},
      {"parallel.tensor", [](Scenario& s) { s.parallel.tensor = 2; }},
      {"parallel.context", [](Scenario& s) { s.parallel.context = 2; }}};
  for (const auto& [key, ask] : asks) {
    Scenario s;
    shard(s);
    EXPECT_TRUE(check_built(s).empty());
    ask(s);
    EXPECT_EQ(lowest_rule(s), "none");
    const auto errors = check_built(s);
    ASSERT_EQ(errors.size(), 1u) << key;
    EXPECT_EQ(errors.front().rule, "L00");
    EXPECT_EQ(errors.front().key, key);
  }
}

}  // namespace
}  // namespace lockstep
