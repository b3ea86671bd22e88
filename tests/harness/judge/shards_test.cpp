#include "harness/judge/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/expect/rank_counters.h"

namespace lockstep {
namespace {

const std::vector<ParameterShape> kParameters{{"a", -1, 3, 2}, {"b", 0, 1, 4}};

ParameterView part(int index, std::int64_t first, std::int64_t count) {
  static float memory[8];
  ParameterView view;
  view.index = index;
  view.first = first;
  view.weight = tensor(memory, 1, count);
  return view;
}

std::string gap(bool sharded, std::vector<std::vector<ParameterView>> ranks) {
  return uncovered(kParameters, sharded, ranks);
}

TEST(Shards, TogetherTheyAreTheWhole) {
  EXPECT_EQ(gap(true, {{part(0, 0, 6), part(1, 0, 4)}}), "");
  EXPECT_EQ(gap(true, {{part(0, 0, 4), part(1, 0, 0)}, {part(0, 4, 2), part(1, 0, 4)}}), "");
  // A rank has of a parameter in several buckets several pieces, in any order.
  EXPECT_EQ(gap(true, {{part(0, 4, 2), part(0, 0, 2), part(1, 0, 4)}, {part(0, 2, 2)}}), "");
}

TEST(Shards, AGapIsNamed) {
  EXPECT_EQ(gap(true, {{part(0, 0, 4), part(1, 0, 4)}, {}}),
            "the ranks hold nowhere: a from element 4");
  EXPECT_EQ(gap(true, {{part(0, 2, 4), part(1, 0, 4)}}),
            "the ranks hold nowhere: a from element 0");
  EXPECT_EQ(gap(true, {{part(0, 0, 6)}}), "the ranks hold nowhere: b from element 0");
}

TEST(Shards, AnOverlapIsNamed) {
  EXPECT_EQ(gap(true, {{part(0, 0, 4), part(1, 0, 4)}, {part(0, 2, 4)}}),
            "the ranks hold twice: a from element 2");
}

TEST(Shards, AViewOfNoParameterIsNamed) {
  EXPECT_EQ(gap(true, {{part(0, 0, 6), part(1, 0, 4)}, {part(2, 0, 4)}}),
            "rank 1 holds a view of parameter 2, and there are 2");
  EXPECT_EQ(gap(false, {{part(-1, 0, 0), part(0, 0, 6), part(1, 0, 4)}}),
            "rank 0 holds a view of parameter -1, and there are 2");
}

TEST(Shards, WithoutShardingEachRankHoldsAll) {
  const std::vector<ParameterView> all{part(0, 0, 6), part(1, 0, 4)};
  EXPECT_EQ(gap(false, {all, all}), "");
  EXPECT_EQ(gap(false, {all, {part(0, 0, 6)}}), "rank 1 holds nowhere: b from element 0");
  EXPECT_THAT(gap(true, {all, all}), testing::HasSubstr("twice"));
}

// Two ranks share the experts of a replica; everything else is whole on each, or cut over all.
TEST(Shards, ExpertsAreWholeOnEachGroupOfRanks) {
  const std::vector<ParameterShape> parameters{{"a", -1, 3, 2},
                                               {"layers.0.experts.fc1.weight", 0, 2, 2}};
  const auto gap_of = [&](bool sharded, const std::vector<std::vector<ParameterView>>& ranks) {
    return uncovered(parameters, sharded, ranks, 1, 2);
  };
  const std::vector<ParameterView> first{part(0, 0, 6), part(1, 0, 2)},
      second{part(0, 0, 6), part(1, 2, 2)};
  EXPECT_EQ(gap_of(false, {first, second, first, second}), "");
  EXPECT_EQ(gap_of(false, {first, second, second, second}),
            "the ranks hold nowhere: layers.0.experts.fc1.weight from element 0");
  EXPECT_EQ(gap_of(false, {first, first, first, second}),
            "the ranks hold twice: layers.0.experts.fc1.weight from element 0");
  EXPECT_EQ(
      gap_of(true,
             {{part(0, 0, 6), part(1, 0, 1)}, {part(1, 2, 1)}, {part(1, 1, 1)}, {part(1, 3, 1)}}),
      "");
}

TEST(RankCounters, WorkAddsUpAndStructureMustAgree) {
  Counters first{{Counter::graph_replays, 4},
                 {Counter::collectives, 9},
                 {Counter::pairs_routed, 10},
                 {Counter::ops, 50}};
  Counters second{{Counter::graph_replays, 4},
                  {Counter::collectives, 9},
                  {Counter::pairs_routed, 3},
                  {Counter::ops, 60}};
  EXPECT_EQ(disagreement({first, second}), "");
  EXPECT_EQ(merged({first, second}, false).at(Counter::pairs_routed), 13);
  EXPECT_EQ(merged({first, second}, false).at(Counter::graph_replays), 4);
  EXPECT_EQ(merged({first, second}, false).at(Counter::ops), 50);
  EXPECT_EQ(merged({first, second}, true).at(Counter::pairs_routed), 13);
  EXPECT_EQ(merged({first, second}, true).at(Counter::graph_replays), 4);
  EXPECT_EQ(merged({first, second}, true).at(Counter::ops), 110);
  second[Counter::collectives] = 8;
  EXPECT_EQ(disagreement({first, second}), "rank 1 counts 8 collectives, rank 0 9");
  EXPECT_EQ(disagreement({first}), "");
}

}  // namespace
}  // namespace lockstep
