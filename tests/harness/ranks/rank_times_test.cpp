// The sections of bench that measure several ranks time every exchange that a scenario asks for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/ranks.h"
#include "engine/train/trainer.h"
#include "harness/expect/sharding_plan.h"
#include "harness/ranks/exchange_waits.h"
#include "harness/ranks/exchanges.h"
#include "harness/ranks/experts.h"
#include "harness/ranks/fsdp.h"
#include "harness/ranks/pipeline.h"
#include "harness/run/launch.h"

namespace lockstep {
namespace {

// The exchanges that are timed are those that the scenario asks for, all of them.
TEST(RanksOfBench, OfShardingTimesEveryExchangeOfAStep) {
  Scenario s;
  s.model.pattern = "M*-M";
  s.parallel.data = 2;
  int rows = 0;
  time_fsdp(s, "sim", all_local_ranks(s), "", 0, [&](const FsdpTimes& one) {
    SCOPED_TRACE(one.mode);
    ++rows;
    ASSERT_EQ(one.not_run, "");
    Scenario mode = s;
    const Sharding strategies[] = {Sharding::no_shard, Sharding::optim, Sharding::optim_grads,
                                   Sharding::optim_grads_params};
    mode.fsdp.strategy = strategies[(rows - 1) / 2];
    EXPECT_EQ(one.gathers.calls + one.reductions.calls,
              collectives_of_step(mode, plan_sharding(mode), s.training.microbatches));
    // One rank of two sends half of what there is; the rest is padding and what is told of the norm
    // and the losses.
    double parameters = 0;
    for (const PlannedBucket& bucket : plan_sharding(mode).buckets)
      parameters += static_cast<double>(bucket.elements);
    const double times = mode.fsdp.strategy >= Sharding::optim_grads
                             ? static_cast<double>(s.training.microbatches)
                             : 1;
    EXPECT_GE(one.reductions.bytes, times * 4 * parameters / 2);
    EXPECT_LE(one.reductions.bytes, times * 4 * parameters / 2 * 1.2);
    EXPECT_GE(one.gathers.bytes, mode.fsdp.strategy == Sharding::optim_grads_params
                                     ? 2 * 4 * parameters / 2
                                     : 4 * parameters / 2);
    for (const double seconds :
         {one.step, one.compute, one.communication, one.gathers.engine, one.reductions.engine}) {
      EXPECT_GT(seconds, 0);
    }
    EXPECT_FALSE(one.gathers.library || one.reductions.library || one.host);
  });
  EXPECT_EQ(rows, 8);
}

TEST(RanksOfBench, OfShardingRunsTheModesThatAreAskedFor) {
  Scenario s;
  s.model.pattern = "M";
  s.parallel.data = 2;
  std::vector<std::string> modes;
  time_fsdp(s, "sim", all_local_ranks(s), "optim eager", 0,
            [&](const FsdpTimes& one) { modes.push_back(one.mode); });
  EXPECT_EQ(modes, std::vector<std::string>{"optim eager"});
}

// Both schedules, eager and with graphs: each stage sends what the order of passes asks for.
TEST(RanksOfBench, OfStagesTimesTheirWorkAndCountsWhatTheySend) {
  Scenario s;
  s.model.pattern = "M*-M-*";
  s.training.microbatches = 4;
  s.parallel.pipeline = 2;
  std::vector<std::string> modes;
  time_pipeline(s, "sim", all_local_ranks(s), "", 0, [&](const PipelineTimes& one) {
    SCOPED_TRACE(one.mode);
    modes.push_back(one.mode);
    ASSERT_EQ(one.not_run, "");
    EXPECT_FALSE(one.has_devices);
    EXPECT_EQ(one.work.size(), 2u);
    for (const double seconds : {one.step, one.brief, one.work[0], one.work[1]})
      EXPECT_GT(seconds, 0);
    // A stage sends forward over v or v - 1 of 2 v - 1 boundaries, and back over the others.
    EXPECT_EQ(one.sends, 4 * (one.chunks == 1 ? 1 : 3));
    EXPECT_EQ(one.bytes, static_cast<double>(one.sends * s.data.pack_length * s.model.hidden * 4));
  });
  EXPECT_EQ(modes, (std::vector<std::string>{"1 chunk eager", "1 chunk partial", "2 chunks eager",
                                             "2 chunks partial"}));
}

TEST(RanksOfBench, ABubbleIsComparedWithTheIdealOne) {
  PipelineTimes one{.mode = "",
                    .not_run = "",
                    .stages = 2,
                    .chunks = 2,
                    .microbatches = 8,
                    .has_devices = true,
                    .step = 1.2,
                    .brief = 1.15,
                    .work = {0.9, 1.0}};
  EXPECT_DOUBLE_EQ(one.ideal(), 1.0 / 16);
  EXPECT_DOUBLE_EQ(one.bubble(), 0.2);
  EXPECT_DOUBLE_EQ(one.above_ideal(), (1.2 - 1.0625) / 1.2);
  EXPECT_NEAR(one.exposed(), 0.05, 1e-12);
}

// All rows of a step are exchanged: two ways forward and two back, of each layer and microbatch.
TEST(RanksOfBench, OfExpertsTimesEveryExchangeOfRows) {
  Scenario s;
  s.model.pattern = "*-M-";
  s.training.microbatches = 3;
  const Scenario apart = with_experts_over(s, 3);
  EXPECT_EQ(apart.model.pattern, "*EME");
  EXPECT_EQ(apart.model.moe.experts, 9);
  std::vector<std::string> run, not_run;
  time_experts(apart, "sim", all_local_ranks(apart), "", 0, [&](const ExpertTimes& one) {
    SCOPED_TRACE(one.mode);
    (one.not_run.empty() ? run : not_run).push_back(one.mode);
    if (!one.not_run.empty()) return;
    EXPECT_EQ(one.exchange.calls, 2 * 3 * 4);
    const double capacity = std::ceil(1.25 * 2 * 64 / 9);
    EXPECT_EQ(one.exchange.bytes, 24 * 2 * 3 * capacity * static_cast<double>(s.model.hidden) * 4);
    for (const double seconds : {one.step, one.exchange.engine}) EXPECT_GT(seconds, 0);
    EXPECT_FALSE(one.of_library());
    EXPECT_FALSE(one.exposed_share());  // The ranks take turns on one device.
  });
  EXPECT_EQ(run, (std::vector<std::string>{"eager", "partial"}));
  // Ranks of one process would wait for each other inside a capture.
  EXPECT_EQ(not_run, (std::vector<std::string>{"captured", "full_iteration"}));
}

// Counts the pairs in place of a clock: each takes a second.
class Counted final : public StreamStopwatch {
 public:
  void begin(BackendStream* stream) override { EXPECT_EQ(std::exchange(open_, stream), nullptr); }
  void end(BackendStream* stream) override {
    EXPECT_EQ(std::exchange(open_, nullptr), stream);
    ++pairs_;
  }
  double take() override { return std::exchange(pairs_, 0); }

 private:
  BackendStream* open_ = nullptr;
  int pairs_ = 0;
};

// Compute waits in each layer and microbatch for numbers of rows, two exchanges forward and two
// back, on each rank; not where it is off, not for other streams, and in graphs it is not timed.
TEST(RanksOfBench, OfExpertsTimesTheWaitsOfCompute) {
  Scenario s;
  s.model.pattern = "*-M-";
  s.training.microbatches = 3;
  s.offload.modules = {};
  Scenario apart = with_experts_over(s, 2);
  apart.cuda_graph.modules = {GraphModule::attn, GraphModule::mamba};
  const auto data = open_data(apart);
  auto backend = std::make_unique<ExchangeWaits>(open_sim(), std::make_unique<Counted>());
  ExchangeWaits& waits = *backend;
  Device device(std::move(backend));
  std::vector<double> of_steps;
  std::vector<std::string> digests;
  run_ranks(device, 2, 1, [&](Communicator& communicator) {
    Trainer trainer(device, apart, *data, {.communicator = &communicator});
    for (const bool is_on : {false, true, true}) {
      communicator.barrier();
      waits.is_on = is_on;
      trainer.step();
      communicator.barrier();
      if (communicator.rank() == 0) of_steps.push_back(waits.take());
      communicator.barrier();
    }
    digests.push_back(trainer.weight_digest());
  });
  EXPECT_EQ(of_steps, (std::vector<double>{0, 2 * 3 * 2 * 5, 2 * 3 * 2 * 5}));
  // The bits of a training that nobody times.
  Device plain(open_sim());
  run_ranks(plain, 2, 1, [&](Communicator& communicator) {
    Trainer trainer(plain, apart, *data, {.communicator = &communicator});
    for (int step = 0; step < 3; ++step) trainer.step();
    digests.push_back(trainer.weight_digest());
  });
  ASSERT_EQ(digests.size(), 4u);
  EXPECT_EQ(std::ranges::count(digests, digests.front()), 4);
}

TEST(RanksOfBench, OnlyWaitsOfComputeForExchangesAreTimed) {
  auto backend = std::make_unique<ExchangeWaits>(open_sim(), std::make_unique<Counted>());
  ExchangeWaits& waits = *backend;
  Device device(std::move(backend));
  const Stream compute(device, "compute"), rows(device, "expert rows"), other(device, "gather");
  const Event event(device);
  waits.is_on = true;
  const auto counts = [&](const Stream& from, const Stream& to) {
    from.record(event);
    to.wait(event);
    return waits.take();
  };
  EXPECT_EQ(counts(rows, compute), 1);
  EXPECT_EQ(counts(rows, other), 0);
  EXPECT_EQ(counts(other, compute), 0);
  EXPECT_EQ(counts(compute, rows), 0);
  EXPECT_EQ(counts(rows, compute), 1);
  compute.begin_capture();
  const Event fork(device);
  compute.record(fork);
  rows.wait(fork);
  EXPECT_EQ(counts(rows, compute), 0);
  const Graph graph = compute.end_capture();
  waits.is_on = false;
  EXPECT_EQ(counts(rows, compute), 0);
}

// Ranks that are processes have the exchange in graphs, too.
TEST(RanksOfBench, OfExpertsTimesGraphsOfProcesses) {
  Scenario s;
  s.model.pattern = "*-";
  s.training.microbatches = 2;
  Scenario apart = with_experts_over(s, 2);
  apart.parallel.transport = Transport::shm;
  const RunFolder folder;
  const ExitStatus status = launch_here(apart, 20, folder, [&](const LocalRanks& ranks) {
    int modes = 0;
    time_experts(apart, "sim", ranks, "", 0, [&](const ExpertTimes& one) {
      const bool all = one.not_run.empty() && one.exchange.calls == 2 * 4 && !one.exposed;
      modes += all;
    });
    return modes == (ranks.first() == 0 ? 4 : 0) ? ExitStatus::held : ExitStatus::violated;
  });
  EXPECT_EQ(status, ExitStatus::held);
}

// Calls that pass are as without the list; silent ones reach nobody.
TEST(RanksOfBench, AListOfExchangesListsThemAndCanBeSilent) {
  const auto sim = [] { return open_sim(); };
  Device device(sim());
  const auto lone = make_self_communicator(device);
  ListingCommunicator listing(*lone);
  const Stream stream(device, "measured");
  DeviceBuffer from(device, 16), to(device, 16);
  stream.fill(from.data(), 7, 16);
  listing.all_gather(stream, {"gather"}, to.data(), from.data(), 16);
  ASSERT_EQ(listing.calls.size(), 1u);
  EXPECT_EQ(bytes_sent({CollectiveKind::all_gather, 16}, 4), 48);
  EXPECT_EQ(bytes_sent({CollectiveKind::all_reduce, 16}, 4), 24);
  listing.grouped([&] {
    for (const int part : {0, 1}) {
      listing.all_gather(stream, {"gather", part}, static_cast<char*>(to.data()) + 8 * part,
                         from.data(), 8);
    }
  });
  listing.all_gather(stream, {"gather"}, to.data(), from.data(), 16);
  ASSERT_EQ(listing.calls.size(), 4u);
  EXPECT_NE(listing.calls[1].group, 0);
  EXPECT_EQ(listing.calls[1].group, listing.calls[2].group);
  EXPECT_EQ(listing.calls[0].group + listing.calls[3].group, 0);
  EXPECT_GT(seconds_of(listing.calls, device, *lone), 0);
  const DeviceBuffer from_place = listing.buffer(device, 16), to_place = listing.buffer(device, 16);
  stream.fill(from_place.data(), 7, 16);
  listing.grouped([&] {
    listing.all_gather(stream, {"gather"}, static_cast<char*>(to_place.data()) + 8,
                       from_place.data(), 8);
    listing.all_gather(stream, {"gather"}, to_place.data(), from.data(), 8);
    listing.all_gather(stream, {"gather"}, to.data(), from_place.data(), 8);
  });
  const auto placed = [](const std::vector<ListingCommunicator::Call>& calls) {
    std::string said;
    for (const auto& call : calls) said += call.placed ? 'p' : '.';
    return said;
  };
  EXPECT_EQ(placed(listing.calls), "....p..");
  ListingCommunicator replay(*lone);  // Calls are timed where they lay: once, and five times.
  seconds_of(listing.calls, device, replay);
  replay.calls.resize(listing.calls.size());
  EXPECT_EQ(placed(replay.calls), placed(listing.calls));
  listing.calls.resize(4);
  listing.silent = true;
  stream.fill(to.data(), 0, 16);
  listing.all_gather(stream, {"gather"}, to.data(), from.data(), 16);
  stream.synchronize();
  EXPECT_EQ(listing.calls.size(), 4u);
  EXPECT_EQ(listing.collectives, 7);
}

}  // namespace
}  // namespace lockstep
