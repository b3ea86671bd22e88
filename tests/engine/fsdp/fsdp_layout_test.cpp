// Where rows lie when parameters are sharded, whatever the shapes.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/fsdp/buffer_plan.h"
#include "engine/parameters/shard_layout.h"

namespace lockstep {
namespace {

Scenario any_scenario() {
  Scenario s;
  s.name = "test";
  s.model.pattern = *rc::gen::container<std::string>(*rc::gen::inRange(1, 9),
                                                     rc::gen::element('M', '*', '-', 'E'));
  s.model.hidden = *rc::gen::inRange(1, 40);
  s.model.vocab = *rc::gen::inRange(2, 50);
  s.model.mlp.hidden = *rc::gen::inRange(1, 40);
  s.model.moe.hidden = *rc::gen::inRange(1, 12);
  s.model.tied_embedding = *rc::gen::arbitrary<bool>();
  s.fsdp.strategy =
      *rc::gen::element(Sharding::no_shard, Sharding::optim, Sharding::optim_grads_params);
  s.fsdp.unit = {*rc::gen::inRange(1, 4)};
  s.fsdp.bucket_bytes = *rc::gen::element<std::int64_t>(0, 1, 600, 4000);
  s.fsdp.double_buffer = *rc::gen::arbitrary<bool>();
  s.fsdp.persist_buf_on_alloc_fail = *rc::gen::arbitrary<bool>();
  s.fsdp.prefetch = *rc::gen::inRange(0, 3);
  return s;
}

struct Any {
  Scenario scenario = any_scenario();
  ParameterList list{scenario.model};
  ShardLayout layout{list, scenario, *rc::gen::inRange(1, 6), *rc::gen::arbitrary<bool>()};
};

TEST(ShardLayout, EveryRowOfEveryParameterHasOneOwner) {
  ASSERT_TRUE(rc::check([] {
    const Any any;
    std::vector<std::vector<int>> owners;
    for (const ParameterSpec& spec : any.list.specs) owners.emplace_back(spec.norm_rows());
    for (const Bucket& bucket : any.layout.buckets) {
      for (const Extent& extent : bucket.extents) {
        const ParameterSpec& spec = any.list.specs[static_cast<std::size_t>(extent.parameter)];
        RC_ASSERT(extent.width * spec.norm_rows() == spec.rows * spec.cols);
        for (int r = 0; r < any.layout.ranks; ++r) {
          const OwnRows own = any.layout.own(bucket, extent, r);
          if (own.rows > 0)
            RC_ASSERT(own.offset >= 0 && own.offset + own.rows * extent.width <= bucket.shard);
          for (std::int64_t i = 0; i < own.rows; ++i) {
            ++owners[static_cast<std::size_t>(extent.parameter)]
                    [static_cast<std::size_t>(own.row + i)];
            // The row lies in the rank's share of the bucket where the extent has it.
            RC_ASSERT(bucket.shard * r + own.offset + i * extent.width ==
                      extent.offset + (own.row + i - extent.row) * extent.width);
          }
        }
      }
    }
    for (const auto& rows : owners)
      RC_ASSERT(std::all_of(rows.begin(), rows.end(), [](int n) { return n == 1; }));
  }));
}

TEST(ShardLayout, SharesCutNoRowAndPiecesDoNotOverlap) {
  ASSERT_TRUE(rc::check([] {
    const Any any;
    for (const Bucket& bucket : any.layout.buckets) {
      std::int64_t end = 0;
      for (const Extent& extent : bucket.extents) {
        RC_ASSERT(extent.offset >= end);
        RC_ASSERT(extent.offset % 128 == 0);
        end = extent.offset + extent.rows * extent.width;
        for (std::int64_t cut = bucket.shard; cut < end; cut += bucket.shard) {
          RC_ASSERT(cut <= extent.offset || (cut - extent.offset) % extent.width == 0);
        }
      }
      RC_ASSERT(end <= any.layout.full(bucket));
    }
  }));
}

// A common multiple of all widths would do: never more than that, and mostly far less.
TEST(ShardLayout, SharesAreNoLargerThanACommonMultipleOfTheWidths) {
  ASSERT_TRUE(rc::check([] {
    const Any any;
    for (const Bucket& bucket : any.layout.buckets) {
      std::int64_t end = 0, common = 1;
      for (const Extent& extent : bucket.extents) {
        const std::int64_t step = std::lcm(extent.width, std::int64_t{128});
        end = (end + step - 1) / step * step + extent.rows * extent.width;
        common = std::lcm(common, extent.width);
      }
      const std::int64_t share = (end + any.layout.ranks - 1) / any.layout.ranks;
      RC_ASSERT(bucket.shard <= (share + common - 1) / common * common);
    }
  }));
}

Scenario one_unit(const std::string& pattern, std::int64_t hidden, std::int64_t hidden_of_experts) {
  Scenario s;
  s.model.pattern = pattern;
  s.model.hidden = hidden;
  s.model.moe.hidden = hidden_of_experts;
  s.fsdp.strategy = Sharding::optim_grads_params;
  s.fsdp.unit = {std::ssize(pattern)};
  return s;
}

// Six blocks a unit of widths 139, 130, 136 and 64: the common multiple is 19,660,160 elements.
TEST(ShardLayout, OddWidthsTakeLittlePadding) {
  Scenario s = one_unit("-*MEEE", 139, 136);
  s.model.mlp.hidden = 130;
  const ShardLayout layout(ParameterList(s.model), s, 8, false);
  for (const Unit& unit : layout.units) {
    std::int64_t elements = 0;
    for (const int bucket : unit.buckets)
      elements += layout.full(layout.buckets[static_cast<std::size_t>(bucket)]);
    EXPECT_LE(elements, 2 * unit.parameters + 4096);
  }
}

// More elements than a common multiple is looked for.
TEST(ShardLayout, HasAnEndForUnitsOfAnySize) {
  Scenario s = one_unit("EEEEEEEE", 16384, 65536);
  s.model.moe.experts = 256;
  for (const int ranks : {1, 2, 3}) {
    const ShardLayout layout(ParameterList(s.model), s, ranks, false);
    EXPECT_GE(layout.full(layout.buckets[1]), layout.units[1].parameters) << ranks;
    EXPECT_LE(layout.full(layout.buckets[1]), 2 * layout.units[1].parameters) << ranks;
  }
}

TEST(ShardLayout, UnitsHoldTheLayersOfTheirBlocksInOrder) {
  ASSERT_TRUE(rc::check([] {
    const Any any;
    int layer = 0;
    for (const Unit& unit : any.layout.units) {
      if (unit.kind != Unit::Kind::blocks) continue;
      RC_ASSERT(unit.first_layer == layer && unit.layers > 0);
      layer += unit.layers;
      for (const int b : unit.buckets) {
        for (const Extent& extent : any.layout.buckets[static_cast<std::size_t>(b)].extents) {
          const int of = any.list.specs[static_cast<std::size_t>(extent.parameter)].layer;
          RC_ASSERT(of >= unit.first_layer && of < layer);
        }
      }
    }
    RC_ASSERT(layer == static_cast<int>(any.scenario.model.pattern.size()));
  }));
}

// A tensor that is cut is whole in memory all the same.
TEST(ShardLayout, CutBucketsContinueEachOtherWithoutPadding) {
  ASSERT_TRUE(rc::check([] {
    const Any any;
    for (int b = 1; b < static_cast<int>(any.layout.buckets.size()); ++b) {
      if (!any.layout.continues(b)) continue;
      const Bucket& before = any.layout.buckets[static_cast<std::size_t>(b) - 1];
      const Extent& extent = before.extents.front();
      RC_ASSERT(before.extents.size() == 1u);
      RC_ASSERT(any.layout.full(before) == extent.rows * extent.width);
      const std::int64_t bytes = extent.rows * extent.width * 4;
      RC_ASSERT(bytes <= any.scenario.fsdp.bucket_bytes || extent.rows == any.layout.ranks);
    }
  }));
}

// The parameters of the units of the largest class, the first in the model.
std::int64_t parameters_of_the_pool(const Any& any) {
  std::map<std::int64_t, int> members;
  for (const Unit& unit : any.layout.units)
    members[unit.parameters] += unit.kind == Unit::Kind::blocks;
  int most = 0;
  for (const auto& [parameters, count] : members) most = std::max(most, count);
  for (const Unit& unit : any.layout.units) {
    if (unit.kind == Unit::Kind::blocks && members[unit.parameters] == most) return unit.parameters;
  }
  return 0;
}

TEST(BufferPlan, SlotsHoldTheirUnitsAndNeighboursOfThePoolTakeTurns) {
  ASSERT_TRUE(rc::check([] {
    const Any any;
    const Scenario::Fsdp& fsdp = any.scenario.fsdp;
    const BufferPlan plan = plan_weights(any.layout, fsdp);
    for (int u = 0; u < static_cast<int>(any.layout.units.size()); ++u) {
      const auto& choices = plan.choices[static_cast<std::size_t>(u)];
      RC_ASSERT(choices.empty() == (fsdp.strategy == Sharding::no_shard));
      for (const int slot : choices) {
        RC_ASSERT(plan.slots[static_cast<std::size_t>(slot)] >=
                  memory_of_weights(any.layout, u).bytes);
      }
      // A graph bakes the address.
      if (fsdp.double_buffer && fsdp.persist_buf_on_alloc_fail) RC_ASSERT(choices.size() < 2u);
    }
    if (fsdp.strategy != Sharding::optim_grads_params || !fsdp.double_buffer) return;
    const std::int64_t pooled = parameters_of_the_pool(any);
    int last = -1;
    for (std::size_t u = 1; u + 1 < any.layout.units.size(); ++u) {
      if (any.layout.units[u].parameters != pooled) continue;
      RC_ASSERT(plan.choices[u].size() == 1u && plan.choices[u].front() != last);
      last = plan.choices[u].front();
    }
  }));
}

// Each rank cuts its own experts over the ranks that have the same ones, and everything else over
// all ranks.
TEST(ShardLayout, CutsExpertsOverTheirReplicas) {
  ASSERT_TRUE(rc::check([] {
    Scenario s;
    s.model.pattern = *rc::gen::element("E", "*EM", "E-E");
    s.model.moe.experts = 12;
    s.fsdp.strategy = *rc::gen::element(Sharding::optim, Sharding::optim_grads_params);
    s.fsdp.unit = {*rc::gen::inRange<std::int64_t>(1, 3)};
    s.parallel.expert = *rc::gen::element(2, 3, 6);
    s.parallel.data = s.parallel.expert * *rc::gen::inRange(1, 4);
    const auto ranks = static_cast<int>(s.parallel.data);
    const ParameterList list(s.model, expert_place(s, 0));
    const ShardLayout layout(list, s, ranks, *rc::gen::arbitrary<bool>());
    std::vector<std::int64_t> owned(list.specs.size());
    for (const Bucket& bucket : layout.buckets) {
      RC_ASSERT(layout.ranks_of(bucket) * bucket.sources == ranks);
      RC_ASSERT(layout.gradients(bucket) == bucket.shard * ranks);
      for (const Extent& extent : bucket.extents) {
        const ParameterSpec& spec = list.specs[static_cast<std::size_t>(extent.parameter)];
        RC_ASSERT(bucket.sources == spec.place.ranks);
        for (int r = 0; r < ranks; ++r)
          owned[static_cast<std::size_t>(spec.index)] += layout.own(bucket, extent, r).rows;
      }
    }
    for (const ParameterSpec& spec : list.specs)
      RC_ASSERT(owned[static_cast<std::size_t>(spec.index)] == spec.norm_rows() * spec.place.ranks);
  }));
}

// The largest class has the pool; of equally large ones the first in the model.
TEST(BufferPlan, GivesThePoolToTheLargestClass) {
  Scenario s;
  s.model.pattern = "M-M-M";
  s.fsdp.strategy = Sharding::optim_grads_params;
  const ParameterList list(s.model);
  const BufferPlan plan = plan_weights(ShardLayout(list, s, 3, false), s.fsdp);
  EXPECT_EQ(plan.persistent, (std::vector<int>{2, 4}));
  s.model.pattern = "-MM-";
  const ParameterList tie(s.model);
  EXPECT_EQ(plan_weights(ShardLayout(tie, s, 3, false), s.fsdp).persistent,
            (std::vector<int>{2, 3}));
}

}  // namespace
}  // namespace lockstep
