// The order of a campaign's cases on an engine: what was not met yet first, small cases first, and
// no case is left out or waits for ever.
#include "harness/foreign/case_order.h"

#include <gtest/gtest.h>

#include <set>

#include "harness/generate/case.h"
#include "harness/generate/crossed.h"
#include "harness/shrink/rules.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

namespace json = boost::json;
using foreign::CaseOrder;
using foreign::Coverage;

const json::object& honours() {
  static const json::object table{
      {"numerics", {"fp32", "bf16"}},
      {"model.pattern", {{"symbols", "*-"}}},
      {"model.hidden", {{"min", 8}, {"max", 4096}, {"multiple_of", 8}}},
      {"model.recompute", {"mlp_act"}},
      {"data.pack_length", {{"max", 8192}}},
      {"training.microbatches", true},
      {"training.eval_every", true},
      {"training.recapture_at", true},
      {"cuda_graph.impl", {"none", "partial", "full_iteration"}},
      {"cuda_graph.modules", {"attn", "mlp"}},
      {"cuda_graph.warmup_steps", {{"min", 1}}},
      {"cuda_graph.max_packed_seqs", {{"min", 1}, {"items", 8}}},
      {"offload.modules", {"qkv_linear", "core_attn", "mlp_fc1"}},
      {"fsdp.strategy", {"no_shard", "optim_grads", "optim_grads_params"}},
      {"parallel.data", {{"min", 1}, {"max", 2}}},
      {"feed.empty_documents", true},
      {"feed.empty_packs", true}};
  return table;
}

std::function<std::optional<CaseOrder::Waiting>()> drawn(std::int64_t count,
                                                         std::uint64_t seed = 9) {
  return [count, seed, index = std::int64_t{0}]() mutable -> std::optional<CaseOrder::Waiting> {
    if (index == count) return std::nullopt;
    CaseOrder::Waiting one{.index = index, .given = make_case(seed, index, "small").scenario};
    ++index;
    return one;
  };
}

std::vector<std::int64_t> order_of(std::int64_t count) {
  CaseOrder order(honours(), Coverage(honours()), drawn(count));
  std::vector<std::int64_t> indices;
  while (const std::optional<CaseOrder::Waiting> one = order.next()) {
    indices.push_back(one->index);
    order.judged(*one);
  }
  return indices;
}

TEST(CaseOrder, JudgesEachCaseOnceAndInTheSameOrderAgain) {
  const std::vector<std::int64_t> indices = order_of(150);
  EXPECT_EQ(indices.size(), 150u);
  EXPECT_EQ(std::set<std::int64_t>(indices.begin(), indices.end()).size(), 150u);
  EXPECT_EQ(order_of(150), indices);
  // The first case does not wait longer than the others around it take.
  EXPECT_LT(std::find(indices.begin(), indices.end(), 0) - indices.begin(), 4);
}

// The effort of all cases until graphs of whole steps, shards and evaluations were met together,
// and offloads outside of partial graphs.
template <class Next>
double effort_of(const Next& next) {
  double effort = 0;
  bool whole = false, offload = false;
  while (!whole || !offload) {
    const CaseOrder::Waiting one = next();
    if (!one.projected) continue;
    const Scenario& s = *one.projected;
    effort += one.effort;
    whole = whole || (s.cuda_graph.impl == GraphImpl::full_iteration && s.training.eval_every > 0 &&
                      s.fsdp.strategy != Sharding::no_shard && s.parallel.data == 1);
    offload = offload || (!s.offload.modules.empty() && s.cuda_graph.impl != GraphImpl::partial);
  }
  return effort;
}

TEST(CaseOrder, MeetsRareCombinationsSoonerThanTheyAreDrawn) {
  double sooner = 0, in_turn = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CaseOrder order(honours(), Coverage(honours()), drawn(1 << 20, seed));
    const auto draw = drawn(1 << 20, seed);
    sooner += effort_of([&] {
      CaseOrder::Waiting one = *order.next();
      order.judged(one);
      return one;
    });
    in_turn += effort_of([&] {
      std::optional<CaseOrder::Waiting> one;
      CaseOrder single(honours(), Coverage(honours()),
                       [&] { return one ? std::nullopt : one = draw(); });
      return *single.next();
    });
  }
  EXPECT_LT(sooner, in_turn / 2);
}

// An engine may refuse what no single key of its table forbids. Here, as in PyTorch's adapter, most
// of what is drawn with an offload or with shards.
TEST(CaseOrder, WhatIsRefusedIsSeldomAskedAgainAndItsPartsAreMet) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const CrossedCases crossed(seed, "small");
    std::int64_t index = 0;
    CaseOrder order(honours(), Coverage(honours()), [&]() -> std::optional<CaseOrder::Waiting> {
      CaseOrder::Waiting one{.index = index, .given = settled(crossed.at(index))};
      ++index;
      return one;
    });
    int refused = 0, judged = 0, offloads = 0, shards = 0;
    while (judged < 25) {
      const CaseOrder::Waiting one = *order.next();
      if (!one.projected) continue;
      const bool offload = !one.projected->offload.modules.empty();
      const bool sharded = one.projected->fsdp.strategy != Sharding::no_shard;
      if (one.projected->cuda_graph.impl == GraphImpl::partial && (offload || sharded)) {
        ++refused;
        order.refused(one);
      } else {
        ++judged;
        offloads += offload;
        shards += sharded;
        order.judged(one);
      }
    }
    EXPECT_LT(refused, 60) << seed;
    EXPECT_GE(offloads, 4) << seed;
    EXPECT_GE(shards, 4) << seed;
  }
}

// Steps in one graph beside shards and evaluations are next to never drawn, and nearly all crossed
// cases can be projected.
TEST(CrossedCases, BringTogetherWhatIsSeldomDrawnTogether) {
  const CrossedCases crossed(9, "small"), again(9, "small");
  const auto is_rare = [](const std::optional<Scenario>& s) {
    return s && s->cuda_graph.impl == GraphImpl::full_iteration && s->training.eval_every > 0 &&
           s->fsdp.strategy != Sharding::no_shard && s->parallel.data == 1;
  };
  int projected = 0, rare = 0, rare_if_drawn = 0;
  for (std::int64_t i = 0; i < 300; ++i) {
    const Scenario one = settled(crossed.at(i));
    EXPECT_EQ(canonical_form(one), canonical_form(settled(again.at(i))));
    const foreign::Projection projection = foreign::project(one, honours());
    projected += projection.scenario.has_value();
    rare += is_rare(projection.scenario);
    rare_if_drawn +=
        is_rare(foreign::project(make_case(9, i, "small").scenario, honours()).scenario);
  }
  EXPECT_GT(projected, 285);
  EXPECT_GT(rare, 3 * rare_if_drawn + 3);
}

}  // namespace
}  // namespace lockstep
