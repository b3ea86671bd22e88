// A thousand steps with offloading: nothing grows, and every step brings back all that it sent.
#include <gtest/gtest.h>

#include <algorithm>

#include "scenarios/io/reader.h"
#include "scenarios/rules/legality.h"
#include "scenarios/rules/offload_modules.h"
#include "tests/engine/train/training_run.h"

namespace lockstep::test {
namespace {

constexpr std::int64_t kSteps = 1000, kSettled = 8;  // Every layout ran eagerly and in every graph.

struct Growth : Observer {
  void on_call(const IssuedCall& issued) override {
    if (const auto* allocated = issued.as<AllocateCall>()) {
      ++allocations;
      if (allocated->pinned) pinned_bytes += allocated->bytes;
    } else if (const auto* record = issued.as<RecordCall>()) {
      last_event = std::max(last_event, record->event);
    } else if (issued.as<CreateStreamCall>()) {
      ++streams;
    }
  }
  bool operator==(const Growth& other) const {
    return allocations == other.allocations && pinned_bytes == other.pinned_bytes &&
           last_event == other.last_event && streams == other.streams;
  }
  int allocations = 0, streams = 0, last_event = 0;
  std::size_t pinned_bytes = 0;
};

Scenario small(GraphImpl impl, bool follows_the_data) {
  Scenario s;
  s.name = "long";
  s.model.pattern = "M*-E";
  s.model.hidden = 8;
  s.model.vocab = 16;
  s.model.attention.head_dim = 4;
  s.model.mamba.d_inner = 8;
  s.model.mamba.head_dim = 4;
  s.model.mamba.state = 4;
  s.model.mlp.hidden = 8;
  s.model.moe.hidden = 8;
  s.model.recompute = {Recompute::mlp_act, Recompute::moe_act};
  s.data.pack_length = 16;
  s.data.documents = {{{5, 3}, {16}}, {{1}, {}}};
  s.training.steps = s.training.optimizer.decay_steps = kSteps;
  s.training.eval_every = 250;
  s.cuda_graph.impl = impl;
  if (follows_the_data) {
    s.model.moe.capacity_factor.reset();
    s.model.moe.pad_to_capacity = false;
    s.model.moe.host_sync = true;
    if (impl == GraphImpl::partial) s.cuda_graph.modules = {GraphModule::mamba, GraphModule::attn};
    s.offload.delay_until_cuda_graph = impl == GraphImpl::partial;
  }
  s.offload.modules = offloadable_modules(s);
  s.offload.pool_slack = 1;
  s.offload.max_inflight = 2;
  return s;
}

void expect_no_growth(const Scenario& s) {
  ASSERT_TRUE(check_legality(s).empty()) << check_legality(s).front().text();
  const auto data = open_data(s);
  Growth growth, settled;
  Device device(open_device_under_test(), &growth);
  Trainer trainer(device, s, *data, {.dry_run_ledger = false});
  std::size_t high_water = 0;
  while (trainer.steps_done() < kSteps) {
    trainer.step();
    if (trainer.evaluation_is_due()) trainer.evaluate();
    const auto counters = trainer.counters();
    ASSERT_EQ(counters.at(Counter::bytes_offloaded), counters.at(Counter::bytes_planned))
        << "step " << trainer.steps_done();
    ASSERT_EQ(counters.at(Counter::bytes_reloaded), counters.at(Counter::bytes_planned))
        << "step " << trainer.steps_done();
    if (trainer.steps_done() != kSettled) continue;
    settled = growth;
    high_water = device.backend().memory_high_water();
  }
  EXPECT_GT(trainer.counters().at(Counter::bytes_planned), 0);
  EXPECT_TRUE(growth == settled) << growth.allocations - settled.allocations
                                 << " allocations after the first steps";
  EXPECT_EQ(device.backend().memory_high_water(), high_water);
}

TEST(OffloadLong, EagerDoesNotGrow) { expect_no_growth(small(GraphImpl::none, false)); }
TEST(OffloadLong, EagerWithRowsThatFollowTheDataDoesNotGrow) {
  expect_no_growth(small(GraphImpl::none, true));
}
TEST(OffloadLong, PartialGraphsDoNotGrow) { expect_no_growth(small(GraphImpl::partial, false)); }
TEST(OffloadLong, PartialGraphsWithDelayedCopiesDoNotGrow) {
  expect_no_growth(small(GraphImpl::partial, true));
}
TEST(OffloadLong, OneGraphOfAStepDoesNotGrow) {
  expect_no_growth(small(GraphImpl::full_iteration, false));
}

}  // namespace
}  // namespace lockstep::test
