// Offloading against the same run without it: bits, bytes, memory.
#include <gtest/gtest.h>

#include <functional>

#include "engine/offload_plan.h"
#include "scenarios/reader.h"
#include "tests/engine/training_run.h"

namespace lockstep::test {
namespace {

using enum OffloadModule;

Scenario base(GraphImpl impl) {
  Scenario s;
  s.name = "offload";
  s.model.pattern = "M*-*-";
  s.model.dropout = {100'000};
  s.training.steps = 6;
  s.training.microbatches = 3;
  s.training.in_flight = 2;
  s.training.eval_every = 2;
  s.cuda_graph.impl = impl;
  s.data.documents = {{{17, 1, 0, 30}, {5, 16, 33}, {3, 3}}, {{64}, {3, 4, 20, 15, 9}, {0, 31}}};
  return s;
}

void offload_all(Scenario& s) {
  s.offload.modules = {qkv_linear, core_attn, attn_proj, mlp_norm, mlp_fc1, mamba_in_proj, mamba_scan};
  if (s.cuda_graph.impl != GraphImpl::partial) s.offload.modules.insert(s.offload.modules.begin(), attn_norm);
  if (s.cuda_graph.impl == GraphImpl::full_iteration) s.offload.max_inflight = 2;
}

constexpr GraphImpl kImpls[] = {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration};

// The row of the table of what bits may not depend on.
TEST(Offload, NothingDependsOnIt) {
  const std::vector<std::function<void(Scenario&)>> variants{
      [](Scenario&) {},
      [](Scenario& s) { s.offload.fraction = Ratio{500'000}; },
      [](Scenario& s) { s.offload.fraction = Ratio{1}; },
      [](Scenario& s) { s.offload.modules = {core_attn}; },
      [](Scenario& s) { s.offload.max_inflight = 0; },
      [](Scenario& s) { s.offload.max_inflight = 3; },
      [](Scenario& s) { s.offload.pool_slack = 3; },
      [](Scenario& s) { s.offload.min_bytes = 10'000; },
  };
  for (const GraphImpl impl : kImpls) {
    const Scenario plain = base(impl);
    const auto data = open_data(plain);
    const Outcome want = run(plain, *data);
    for (std::size_t i = 0; i < variants.size(); ++i) {
      Scenario s = plain;
      offload_all(s);
      variants[i](s);
      ASSERT_TRUE(check_legality(s).empty()) << check_legality(s).front().text();
      const Outcome got = run(s, *data);
      EXPECT_EQ(difference(want, got), "") << to_text(impl) << ", variant " << i;
      EXPECT_GT(got.counters.at("bytes_planned"), 0);
      EXPECT_EQ(got.counters.at("bytes_planned"), got.counters.at("bytes_offloaded"));
      EXPECT_EQ(got.counters.at("bytes_planned"), got.counters.at("bytes_reloaded"));
    }
  }
}

// A GPU allocates in larger steps than asked for, so there the bound is the 95 %.
TEST(Offload, MemoryFallsByWhatThePlanSays) {
  for (const GraphImpl impl : kImpls) {
    const auto high_water = [&](const Scenario& s) {
      const auto data = open_data(s);
      Device device(open_device_under_test());
      Trainer trainer(device, s, *data, {});
      for (int i = 0; i < 3; ++i) trainer.step();
      return static_cast<std::int64_t>(device.backend().memory_high_water());
    };
    Scenario s = base(impl);
    s.data.pack_length = 256;
    const std::int64_t without = high_water(s);
    offload_all(s);
    const std::int64_t saved = plan_offload(s).saved_bytes();
    EXPECT_GT(saved, 0);
    EXPECT_GE((without - high_water(s)) * 100, saved * 95) << to_text(impl);
  }
}

TEST(Offload, NeverAllocatesAfterTheFirstSteps) {
  for (const GraphImpl impl : kImpls) {
    Scenario s = base(impl);
    s.training.steps = 30;
    offload_all(s);
    s.offload.pool_slack = 1;
    struct Growth : Observer {
      void on_allocate(void*, std::size_t, bool) override { ++allocations; }
      int allocations = 0;
    } growth;
    const auto data = open_data(s);
    Device device(open_device_under_test(), &growth);
    Trainer trainer(device, s, *data, {});
    for (int i = 0; i < 3; ++i) trainer.step();
    const int after_capture = growth.allocations;
    while (trainer.steps_done() < 30) trainer.step();
    EXPECT_EQ(growth.allocations, after_capture) << to_text(impl);
  }
}

// A graph of a whole step holds the copies: to the host and back, of every microbatch.
TEST(Offload, CopiesAreNodesOfTheGraphOfAStep) {
  Scenario s = base(GraphImpl::full_iteration);
  offload_all(s);
  struct Nodes : Observer {
    void on_end_capture(int, int, const Ledger& ledger) override {
      for (const LedgerEntry& entry : ledger.entries()) {
        if (entry.kind == LedgerEntry::Kind::copy) bytes += static_cast<std::int64_t>(entry.bytes);
      }
    }
    std::int64_t bytes = 0;
  } nodes;
  const auto data = open_data(s);
  Device device(open_device_under_test(), &nodes);
  Trainer trainer(device, s, *data, {});
  trainer.step();
  EXPECT_EQ(nodes.bytes, 0);
  trainer.step();
  EXPECT_EQ(nodes.bytes, 2 * 3 * plan_offload(s).bytes());
}

TEST(Offload, StopsAndResumesWithTheSameBits) {
  for (const GraphImpl impl : kImpls) {
    Scenario s = base(impl);
    offload_all(s);
    const auto data = open_data(s);
    EXPECT_EQ(difference(run(s, *data), run_resumed(s, *data, 3)), "") << to_text(impl);
  }
}

}  // namespace
}  // namespace lockstep::test
