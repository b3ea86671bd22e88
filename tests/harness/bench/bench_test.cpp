// The numbers that bench divides by: the operations and bytes of an op and of a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "harness/base/errors.h"
#include "harness/bench/dispatch.h"
#include "harness/bench/model.h"
#include "harness/bench/offload.h"
#include "harness/bench/packing.h"
#include "harness/bench/work.h"
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

}  // namespace
}  // namespace lockstep
