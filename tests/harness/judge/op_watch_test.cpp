// The first op that wrote something else than the oracle's is named, whatever tensor shows it.
#include "harness/judge/op_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "harness/inject/document_fault.h"
#include "harness/judge/judged_case.h"
#include "harness/judge/runner.h"
#include "harness/run/worker.h"
#include "scenarios/io/reader.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

std::vector<Scenario> by_precision(const std::string& name) {
  const ReadResult read = read_scenario_file(library_file(name));
  EXPECT_TRUE(read.ok()) << name;
  std::vector<Scenario> all;
  for (const Numerics numerics : read.scenario.numerics) {
    all.push_back(read.scenario);
    all.back().numerics = {numerics};
  }
  return all;
}

// Ops in a graph, in several microbatches, of ranks, of an evaluation, run again for what was not
// saved, with other shapes, and behind a load.
const char* const kSound[] = {"full-iteration",
                              "hybrid-in-flight-3",
                              "fsdp-params-graphs",
                              "evaluation-by-graphs",
                              "fsdp-offload-recompute",
                              "moe-sigmoid-bias-shared",
                              "moe-capacity-drops",
                              "moe-dropless-host-sync",
                              "dropout",
                              "swiglu",
                              "gqa-tied",
                              "several-buckets",
                              "packed-fallback-mix",
                              "cudnn-attention-graphs",
                              "resume-on-other-ranks"};

TEST(OpWatch, FindsNoWrongOpInASoundRunAndComparesAll) {
  std::set<std::string> compared, noted;
  for (const char* name : kSound) {
    for (const Scenario& scenario : by_precision(name)) {
      SCOPED_TRACE(scenario.name + " " + to_text(scenario.numerics.front()));
      const auto data = open_planted_data(scenario);
      OpWatch watch(scenario, *data, "");
      const RunOptions options;
      const RunOutcome outcome = observed_run({scenario, options, *data, &watch}, 1);
      EXPECT_TRUE(outcome.holds());
      ASSERT_FALSE(watch.first()) << watch.first()->op << "." << watch.first()->operand;
      compared.insert(watch.compared().begin(), watch.compared().end());
      oracle::Oracle oracle(
          scenario, {.numerics = scenario.numerics.front(), .keep_written = true, .mutation = ""});
      for (const auto& one : oracle.step(0, data->training(0)).microbatches) {
        for (const oracle::Tensor& tensor : one.written) noted.insert(tensor.name);
      }
    }
  }
  EXPECT_EQ(compared, noted);
}

// Each of these is first seen in the gradient of a parameter that another op writes.
TEST(OpWatch, NamesTheOpWhoseGradientNobodyReads) {
  const std::pair<const char*, WrongOp> cases[] = {
      {"rope-gradient-turns-forwards", {.layer = 1, .op = "rope", .operand = "qkv"}},
      {"attention-gradient-forgets-delta",
       {.layer = 1, .op = "attention_backward", .operand = "dqkv"}},
      {"gated-norm-gradient-forgets-dsilu",
       {.layer = 0, .op = "gated_norm_backward", .operand = "dz"}},
      {"residual-gradient-skips-the-branch",
       {.layer = 2, .op = "rms_norm_backward", .operand = "dx"}}};
  for (const auto& [mutation, want] : cases) {
    SCOPED_TRACE(mutation);
    Scenario scenario;
    scenario.numerics = {Numerics::fp32};
    const CaseResult result = judge_case(scenario, {.planted = {.oracle = mutation}});
    ASSERT_TRUE(result.first_difference);
    EXPECT_EQ(result.first_difference->op.find(want.op), std::string::npos);
    ASSERT_TRUE(result.wrong_op);
    EXPECT_EQ(result.wrong_op->op, want.op);
    EXPECT_EQ(result.wrong_op->operand, want.operand);
    EXPECT_EQ(result.wrong_op->layer, want.layer);
    EXPECT_TRUE(result.wrong_op->backward);
  }
}

// The op is right, but what it reads was written for another microbatch.
TEST(OpWatch, NamesTheOpsThatWroteWhatAWrongOpReads) {
  Scenario scenario;
  scenario.numerics = {Numerics::fp32};
  scenario.data.documents = {{{3, 3}, {3, 3}}};
  scenario.model.dropout = Ratio{500'000};
  scenario.training.microbatches = 4;
  RunOptions options;
  options.planted.engine = "metadata-built-once";
  const CaseResult result =
      run_in_worker(scenario, options, {.fork = true, .timeout_s = 60, .echo = false});
  ASSERT_TRUE(result.wrong_op) << result.reason;
  EXPECT_EQ(result.wrong_op->op, "embedding_forward");
  EXPECT_EQ(result.wrong_op->microbatch, 2);
  EXPECT_THAT(result.wrong_op->inputs,
              testing::Contains(WrongOp::Input{"row_number", "pack_metadata of microbatch 0"}));
}

// An error behind the passes is no op of theirs; a search that nobody asks for is not made.
TEST(OpWatch, NamesNoOpWhereAllAreRight) {
  Scenario scenario;
  scenario.numerics = {Numerics::fp32};
  RunOptions options{.planted = {.oracle = "norm-of-gradients-misses-a-parameter"}};
  const CaseResult result = judge_case(scenario, options);
  EXPECT_EQ(result.judge, JudgeKind::norm);
  EXPECT_EQ(result.wrong_op, WrongOp());
  options.names_op = false;
  EXPECT_FALSE(judge_case(scenario, options).wrong_op);
}

}  // namespace
}  // namespace lockstep
