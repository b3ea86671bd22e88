// The numbers that bench divides by: the operations and bytes of an op and of a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "harness/base/errors.h"
#include "harness/bench/dispatch.h"
#include "harness/bench/exchanges.h"
#include "harness/bench/fsdp.h"
#include "harness/bench/model.h"
#include "harness/bench/offload.h"
#include "harness/bench/packing.h"
#include "harness/bench/work.h"
#include "harness/expect/sharding_plan.h"
#include "kernels/ops/accumulate.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/linear.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

TEST(Bench, TheStandardModelsAreLegalAndBuilt) {
  for (const char* name : {"H1", "S1"}) {
    const auto scenario = standard_model(name);
    ASSERT_TRUE(scenario);
    EXPECT_EQ(scenario->name, name);
    for (const auto& error : check_legality(*scenario)) ADD_FAILURE() << error.text();
    for (const auto& error : check_built(*scenario)) ADD_FAILURE() << error.text();
  }
  EXPECT_FALSE(standard_model("h1"));
}

// Counted by hand: 340,262,912 weights in products; 6 x 32,768 tokens each make 66.9 TFLOP, the
// scan adds 1.44.
TEST(Bench, AStepOfH1NeedsWhatIsPublishedForIt) {
  const Scenario h1 = *standard_model("H1");
  const std::vector<MicrobatchLengths> empty(4);
  EXPECT_DOUBLE_EQ(model_flop(h1, empty),
                   6.0 * 32768 * 340'262'912 + 3.0 * 7 * 4096 * 128 * 32768 * 4);
  const std::vector<MicrobatchLengths> one{{3}, {}, {}, {}};
  EXPECT_DOUBLE_EQ(model_flop(h1, one) - model_flop(h1, empty), 3.0 * 4 * 16 * 128 * 2 * 6);
}

// A plan that fits under compute may cost 2 % of a step; one that does not may cost anything.
TEST(Bench, APlanThatFitsMustNotCostMuch) {
  OffloadRow row;
  row.plain = row.model.compute = 1.0;
  row.time.median = 1.019;
  EXPECT_TRUE(row.as_promised());
  row.time.median = 1.021;
  EXPECT_FALSE(row.as_promised());
  row.model.stalled = 0.006;
  EXPECT_TRUE(row.as_promised());
  LinkRates link;
  link.alone = {50, 55};
  link.beside = {45, 44};
  EXPECT_DOUBLE_EQ(link.kept(), 0.8);
}

std::vector<PackingRow> packing_rows(const Scenario& scenario, const std::string& only) {
  std::vector<PackingRow> rows;
  time_packing(scenario, "sim", 0.01, only, [&](const PackingRow& row) { rows.push_back(row); });
  return rows;
}

TEST(Bench, EachOpThatWorksOnDocumentsIsTimedAtEachCapacity) {
  Scenario s;
  s.data.pack_length = 96;
  s.cuda_graph.max_seqlen = 3;  // Not of these packs.
  std::vector<std::string> names;
  for (const PackingRow& row : packing_rows(s, "")) {
    EXPECT_EQ(row.not_run, "") << row.name;
    for (const double seconds : row.seconds) EXPECT_GT(seconds, 0) << row.name << " " << row.mode;
    EXPECT_FALSE(row.promised) << row.name;  // Times of the simulator mean nothing.
    names.push_back(row.name + " " + row.mode);
  }
  const std::vector<std::string> expected{"attention_forward eager",
                                          "attention_forward graph",
                                          "attention_backward eager",
                                          "attention_backward graph",
                                          "conv_forward eager",
                                          "conv_forward graph",
                                          "conv_backward eager",
                                          "conv_backward graph",
                                          "scan_forward eager",
                                          "scan_forward graph",
                                          "scan_backward eager",
                                          "scan_backward graph",
                                          "pack_metadata eager",
                                          "pack_metadata graph",
                                          "step eager",
                                          "step graph"};
  EXPECT_EQ(names, expected);
  EXPECT_EQ(packing_rows(s, "scan_forward graph").size(), 1);
  s.model.pattern = "*-";
  EXPECT_TRUE(packing_rows(s, "scan").empty());
  s.model.pattern = "--";
  EXPECT_THROW(packing_rows(s, ""), RequestError);
}

TEST(Bench, OurOpsMayCostOnePercentAtTheLargestCapacity) {
  PackingRow row;
  row.cost = 0.5;
  EXPECT_TRUE(row.as_promised());
  row.promised = true;
  EXPECT_FALSE(row.as_promised());
  row.cost = 0.0099;
  EXPECT_TRUE(row.as_promised());
}

TEST(Bench, CausalPairsAreThoseInsideDocuments) {
  EXPECT_EQ(causal_pairs({}), 0);
  EXPECT_EQ(causal_pairs({4, 0, 1}), 11);
}

TEST(Bench, AProductIsTwoOperationsAPair) {
  std::vector<bf16> x(6 * 8), w(10 * 8), y(6 * 10);
  std::vector<float> dw(10 * 8);
  const Submission forward(LinearForward<bf16>{
      .x = tensor(x.data(), 6, 8), .w = tensor(w.data(), 10, 8), .y = tensor(y.data(), 6, 10)});
  const OpWork work = work_of(forward, {});
  EXPECT_EQ(work.bound, Bound::product);
  EXPECT_EQ(work.flop, 2 * 6 * 8 * 10);
  EXPECT_EQ(work.bytes, 2 * (48 + 80 + 60));
  EXPECT_EQ(signature(forward), "linear_forward 6x16B 10x16B 6x20B");
}

TEST(Bench, WhatIsAccumulatedIsReadAndWritten) {
  std::vector<float> g(6), acc(6);
  const OpWork work = work_of(
      Submission(AccumulateGradient{.g = tensor(g.data(), 2, 3), .acc = tensor(acc.data(), 2, 3)}),
      {});
  EXPECT_EQ(work.bound, Bound::bandwidth);
  EXPECT_EQ(work.bytes, 3 * 24);
  EXPECT_EQ(work.flop, 0);
}

TEST(Bench, AnEmbeddingMovesTheRowsOfItsTokens) {
  std::vector<float> memory(10 * 3);
  std::vector<std::int32_t> tokens(4);
  const PackWork pack{.causal_pairs = 0, .tokens = 2};
  EmbeddingForward<float> forward;
  forward.tokens = tensor(tokens.data(), 1, 4);
  forward.weight = tensor(memory.data(), 10, 3);
  EXPECT_EQ(work_of(Submission(forward), pack).bytes, 4 * 4 + 2 * 12);
  EmbeddingBackward<float> written, added;
  written.dy = added.dy = tensor(memory.data(), 4, 3);
  written.dweight = tensor(memory.data() + 12, 6, 3);
  added.acc = tensor(memory.data() + 12, 6, 3);
  EXPECT_EQ(work_of(Submission(written), pack).bytes, 4 * 12 + 6 * 12);
  EXPECT_EQ(work_of(Submission(added), pack).bytes, 4 * 12 + 2 * 2 * 12);
}

// Waits are expensive on a GPU that several workers share: a judge waits once for all that it looks
// at after a pass.
TEST(Bench, ARandomCaseWaitsForItsDeviceSomeDozenTimes) {
  const std::vector<DispatchCount> table = count_dispatch(1, 30);
  const auto count_of = [&](const std::string& call) {
    const auto found = std::find_if(table.begin(), table.end(),
                                    [&](const DispatchCount& one) { return one.call == call; });
    return found == table.end() ? DispatchCount{} : *found;
  };
  EXPECT_GT(count_of("host waits").median, 0);
  EXPECT_LT(count_of("host waits").median, 200);  // Up to 8 ranks wait.
  for (const char* call :
       {"allocations", "pinned allocations", "ops", "copies", "waits", "captures", "delays"}) {
    EXPECT_GT(count_of(call).most, 0) << call;
  }
}

// The exchanges that are timed are those that the scenario asks for, all of them.
TEST(Bench, OfShardingTimesEveryExchangeOfAStep) {
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

TEST(Bench, OfShardingRunsTheModesThatAreAskedFor) {
  Scenario s;
  s.model.pattern = "M";
  s.parallel.data = 2;
  std::vector<std::string> modes;
  time_fsdp(s, "sim", all_local_ranks(s), "optim eager", 0,
            [&](const FsdpTimes& one) { modes.push_back(one.mode); });
  EXPECT_EQ(modes, std::vector<std::string>{"optim eager"});
}

// Calls that pass are as without the list; silent ones reach nobody.
TEST(Bench, AListOfExchangesListsThemAndCanBeSilent) {
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
