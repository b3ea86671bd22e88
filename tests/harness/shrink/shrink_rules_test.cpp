// The rules of shrinking: their proposals, and one for each key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "harness/shrink/rules.h"
#include "scenarios/schema/schema.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

TEST(ShrinkRules, ProposeOnlySmallerNumbersAndEachRange) {
  EXPECT_THAT(smaller(9, 1), ElementsAre(1, 5, 7, 8));
  EXPECT_THAT(smaller(2, 1), ElementsAre(1));
  EXPECT_TRUE(smaller(1, 1).empty());
  EXPECT_TRUE(removals(0).empty());
  EXPECT_THAT(removals(3),
              ElementsAre(std::pair{0, 3}, std::pair{0, 1}, std::pair{1, 2}, std::pair{2, 3}));
}

// A key that nobody shrinks would stay in every shrunk file.
TEST(ShrinkRules, KnowEveryKey) {
  std::set<std::string> known{"schema",
                              "name",
                              "description",
                              "model.pattern",
                              "data.kind",
                              "data.documents",
                              "data.path",
                              "data.digest",
                              "data.long_documents",
                              "cuda_graph.impl",
                              "cuda_graph.modules",
                              "offload.modules",
                              "expect.verdict",
                              "expect.error",
                              "expect.judge",
                              "expect.counters"};
  for (const Setting& setting : settings()) known.insert(setting.key);
  for (const Size& size : sizes()) known.insert(size.key);
  for (const Key& key : schema()) {
    const bool covered = std::any_of(known.begin(), known.end(), [&](const std::string& name) {
      return key.path == name || key.path.starts_with(name + ".");
    });
    EXPECT_TRUE(covered) << key.path;
  }
}

// Eager passes too keep the metadata of more documents elsewhere: without graphs the capacity is
// not without effect.
TEST(ShrinkRules, KeepACapacityThatDocumentsGoBeyond) {
  Scenario eager;
  eager.cuda_graph.impl = GraphImpl::none;
  eager.cuda_graph.max_packed_seqs = {1, 2};
  eager.data.documents = {{{1, 1, 1}}};
  EXPECT_THAT(settled(eager).cuda_graph.max_packed_seqs, ElementsAre(2));
  eager.data.documents = {{{1, 1}}};
  EXPECT_EQ(settled(eager).cuda_graph.max_packed_seqs, Scenario().cuda_graph.max_packed_seqs);
}

// A bug of eviction needs a limit that still evicts: half of the layers are proposed under the same
// and under half of it.
TEST(ShrinkRules, LowerALimitOfGraphsWithItsGraphs) {
  Scenario s;
  s.model.pattern = "*-*-";
  s.cuda_graph.impl = GraphImpl::partial;
  s.cuda_graph.modules = {GraphModule::attn, GraphModule::mlp};
  s.training.in_flight = 2;
  s.cuda_graph.graph_memory_limit = 8000;
  const auto limits_of = [&](const std::string& rule, const auto& smaller) {
    std::set<std::int64_t> limits;
    for (const ShrinkRule& one : shrink_rules()) {
      if (one.name != rule) continue;
      for (const Scenario& candidate : one.candidates(s)) {
        if (smaller(candidate)) limits.insert(candidate.cuda_graph.graph_memory_limit);
      }
    }
    return limits;
  };
  const auto has_one_module = [](const Scenario& one) {
    return one.cuda_graph.modules.size() == 1;
  };
  EXPECT_THAT(limits_of("fewer graph modules", has_one_module), ElementsAre(4000, 8000));
  const auto has_all_graphs = [](const Scenario& one) {
    return one.cuda_graph.max_packed_seqs.size() == 1;
  };
  s.cuda_graph.max_packed_seqs = {2, 4};
  EXPECT_THAT(limits_of("fewer buckets", has_all_graphs), ElementsAre(4000, 8000));
  s.cuda_graph.graph_memory_limit = 0;
  EXPECT_THAT(limits_of("fewer graph modules", has_one_module), ElementsAre(0));
}

}  // namespace
}  // namespace lockstep
