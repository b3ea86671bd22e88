// The first op that wrote something else than the oracle's is named, whatever tensor shows it.
#include "harness/judge/op_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "harness/inject/document_fault.h"
#include "harness/inject/fault_table.h"
#include "harness/judge/judged_case.h"
#include "harness/judge/runner.h"
#include "harness/report/report.h"
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
                              "capture-passes",
                              "offload-capture-passes",
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
      ASSERT_FALSE(watch.left_out())
          << watch.left_out()->op << " of layer " << watch.left_out()->layer;
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

CaseResult judged_with(const std::string& fault, const Scenario& scenario) {
  RunOptions options;
  options.planted.engine = fault;
  return run_in_worker(scenario, options, {.fork = true, .timeout_s = 60, .echo = false});
}

// Models of few layers, so that a wrong op is often far from what shows it.
std::vector<Scenario> models() {
  std::vector<Scenario> all(3);
  for (Scenario& one : all) {
    one.numerics = {Numerics::fp32};
    one.model.dropout = Ratio{200'000};
    one.training.steps = 2;
  }
  all[1].model.pattern = "E*";
  all[1].model.moe.shared_hidden = 8;
  all[1].model.moe.aux_loss = all[1].model.moe.z_loss = Ratio{10'000};
  all[2].numerics = {Numerics::bf16};
  all[2].model.mlp.activation = MlpActivation::swiglu;
  return all;
}

// Whether the op is one of those in the file of a fault: kernels/host/conv.cpp has conv_forward and
// conv_backward. Nothing for files that all ops use, and for ops of no pass.
std::optional<bool> is_in_file_of(std::string_view fault, const std::string& op) {
  static const std::map<std::string, std::vector<std::string>> other_ops{
      {"cross_entropy", {"microbatch_loss"}}, {"dispatch", {"combine", "expert_layout"}},
      {"dropout", {"embedding", "residual"}}, {"expert_product", {"expert_"}},
      {"router", {"expert_counts"}},          {"rows", {"conv", "gated_norm", "rms_norm", "scan"}}};
  static const std::set<std::string> no_pass{"accumulate",   "cudnn_attention", "digest",
                                             "expert_state", "fingerprint",     "initialize",
                                             "optimizer",    "scan_chunk",      "tensor_core"};
  std::string file(fault_place(fault));
  file = file.substr(file.rfind('/') + 1);
  file = file.substr(0, file.find('.'));
  if (no_pass.contains(file)) return std::nullopt;
  std::vector<std::string> begins{file};
  if (const auto more = other_ops.find(file); more != other_ops.end())
    begins.insert(begins.end(), more->second.begin(), more->second.end());
  return std::ranges::any_of(begins, [&](const auto& begin) { return op.starts_with(begin); });
}

// Whatever tensor shows a fault of a kernel, the report names one of the ops of the kernel's file.
TEST(OpWatch, NamesTheOpOfEachKernelFaultThatItFinds) {
  std::set<std::string> named, elsewhere;  // By the op alone.
  for (const std::string& fault : kernel_faults()) {
    if (!is_in_file_of(fault, "")) continue;
    for (const Scenario& scenario : models()) {
      const CaseResult result = judged_with(fault, scenario);
      if (!result.wrong_op) continue;
      EXPECT_TRUE(*is_in_file_of(fault, result.wrong_op->op))
          << fault << " in " << scenario.model.pattern << ": " << result.wrong_op->op << ", "
          << result.wrong_op->operand << "; " << result.reason;
      named.insert(fault);
      const std::string& writer = result.first_difference->op;
      if (writer.find(result.wrong_op->op) == std::string::npos) elsewhere.insert(fault);
      break;
    }
  }
  EXPECT_GE(named.size(), 70U);
  EXPECT_GE(elsewhere.size(), 40U) << "the tensor names these without the search";
}

// The op is right, but what it reads was written for another microbatch, or in another step.
TEST(OpWatch, NamesTheOpsThatWroteWhatAWrongOpReads) {
  Scenario scenario;
  scenario.numerics = {Numerics::fp32};
  scenario.data.documents = {{{3, 3}, {3, 3}}};
  scenario.model.dropout = Ratio{500'000};
  scenario.training.microbatches = 4;
  const CaseResult stale = judged_with("metadata-built-once", scenario);
  ASSERT_TRUE(stale.wrong_op) << stale.reason;
  EXPECT_EQ(stale.wrong_op->op, "embedding_forward");
  EXPECT_EQ(stale.wrong_op->microbatch, 2);
  EXPECT_THAT(stale.wrong_op->inputs,
              testing::Contains(WrongOp::Input{"row_number", "pack_metadata of microbatch 0"}));
  const CaseResult kept = judged_with("gradients-not-zeroed-at-step-start", scenario);
  ASSERT_TRUE(kept.wrong_op) << kept.reason;
  // Behind the head, whose sum begins with its first gradient.
  EXPECT_EQ(kept.wrong_op->op, "rms_norm_backward");
  EXPECT_EQ(kept.wrong_op->operand, "total");
  EXPECT_THAT(kept.wrong_op->inputs, testing::Contains(WrongOp::Input{
                                         "total", "rms_norm_backward of microbatch 3, step 0"}));
  const CaseResult added = judged_with("first-gradient-is-added", scenario);
  ASSERT_TRUE(added.wrong_op) << added.reason;
  EXPECT_EQ(added.wrong_op->op, "linear_weight_gradient");
  EXPECT_EQ(added.wrong_op->operand, "acc");
  EXPECT_THAT(
      added.wrong_op->inputs,
      testing::Contains(WrongOp::Input{"acc", "linear_weight_gradient of microbatch 3, step 0"}));
}

// All ops are right, but a copy to the host came when another op had written over the tensor.
TEST(OpWatch, NamesTheOpThatWroteOverAnActivation) {
  const ReadResult read = read_scenario_text(
      "{schema: 1, name: over, numerics: [fp32], model: {pattern: 'E-*M', hidden: 1, vocab: 2, "
      "attention: {heads: 1, head_dim: 2}, mamba: {d_inner: 1, head_dim: 1, state: 1}, "
      "mlp: {hidden: 1}, moe: {experts: 2, top_k: 1, hidden: 1, pad_to_capacity: false}}, "
      "data: {pack_length: 2, documents: [[[2]]]}, "
      "training: {steps: 2, microbatches: 1, seed: 6}, "
      "cuda_graph: {modules: [mamba], max_packed_seqs: 1}, "
      "offload: {modules: [core_attn, expert_fc1], delay_until_cuda_graph: true}}",
      "text");
  ASSERT_TRUE(read.ok());
  const CaseResult result = judged_with("offload-bins-forget-the-delay", read.scenario);
  ASSERT_TRUE(result.wrong_op) << result.reason;
  EXPECT_EQ(result.wrong_op->op, "");
  EXPECT_THAT(result.wrong_op->inputs,
              testing::ElementsAre(
                  WrongOp::Input{"layers.0.dispatched", "a copy of attention_forward of layer 2"}));
}

// The launch of a backward graph is left out: what its ops write keeps its values, and no op wrote
// a wrong one. In the second scenario, without a warm-up, both ranks leave it out.
TEST(OpWatch, NamesTheGraphThatWasNotLaunched) {
  const std::pair<const char*, WrongOp> cases[] = {
      {"model: {pattern: M-, hidden: 1, vocab: 2, mamba: {d_inner: 1, head_dim: 1, state: 1, "
       "conv_width: 1, chunk: 1}, mlp: {hidden: 2}}, data: {pack_length: 2, documents: [[[2]], "
       "[[]]]}, training: {steps: 2, microbatches: 1, seed: 5}",
       {.step = 1,
        .microbatch = 0,
        .layer = 0,
        .backward = true,
        .op = "linear_weight_gradient",
        .operand = ""}},
      {"model: {pattern: '--', hidden: 1, vocab: 2, mlp: {hidden: 1}}, data: {pack_length: 2, "
       "documents: [[[2]]]}, training: {steps: 1, microbatches: 1, seed: 5}, cuda_graph: "
       "{warmup_steps: 0}, parallel: {data: 2}",
       {.step = 0,
        .microbatch = 0,
        .layer = 0,
        .backward = true,
        .op = "linear_weight_gradient",
        .operand = ""}}};
  for (auto [text, want] : cases) {
    SCOPED_TRACE(text);
    const ReadResult read = read_scenario_text(
        std::string("{schema: 1, name: skipped, numerics: [fp32], ") + text + "}", "text");
    ASSERT_TRUE(read.ok()) << read.errors.front().text();
    const CaseResult result = judged_with("replay-skipped-once", read.scenario);
    ASSERT_TRUE(result.wrong_op) << result.reason;
    want.inputs = {{"graph", "backward graph of region 0"}};
    EXPECT_EQ(*result.wrong_op, want)
        << result.wrong_op->op << " of layer " << result.wrong_op->layer;
    EXPECT_THAT(
        failure_block(result),
        testing::HasSubstr("left out  linear_weight_gradient, layer 0, microbatch 0, step " +
                           std::to_string(want.step) +
                           ", rank 0: it ran less often than the oracle's\n"
                           "  it is of  the backward graph of region 0, of which no op ran\n"));
  }
}

// Memory that is poisoned after capture passes shows that nobody wrote; the hazard names who reads.
TEST(OpWatch, NamesTheGraphThatShouldHaveWritten) {
  const ReadResult read = read_scenario_text(
      "{schema: 1, name: skipped, numerics: [fp32], model: {pattern: '--', hidden: 1, vocab: 2, "
      "mlp: {hidden: 1}}, data: {pack_length: 2, documents: [[[2]]]}, training: {steps: 1, "
      "microbatches: 1}, cuda_graph: {warmup_steps: 0, max_packed_seqs: 1, capture_passes: 2}}",
      "text");
  ASSERT_TRUE(read.ok());
  const CaseResult result = judged_with("replay-skipped-once", read.scenario);
  EXPECT_EQ(result.judge, JudgeKind::hazard);
  EXPECT_THAT(result.reason, testing::StartsWith("use before write: "));
  ASSERT_TRUE(result.wrong_op) << result.reason;
  EXPECT_EQ(result.wrong_op->op, "linear_weight_gradient");
  EXPECT_THAT(result.wrong_op->inputs,
              testing::ElementsAre(WrongOp::Input{"graph", "backward graph of region 0"}));
  // An edge that is missing leaves out no op.
  Scenario scenario;
  scenario.numerics = {Numerics::fp32};
  const CaseResult race = judged_with("compute-ignores-loaded-event", scenario);
  EXPECT_EQ(race.judge, JudgeKind::hazard);
  EXPECT_FALSE(race.wrong_op);
}

// The harness looks at the rows that the oracle's experts have: an oracle with other ones makes it
// read what no op had to write.
TEST(OpWatch, NamesTheOpThatDiffersAboutTheRowsInUse) {
  const ReadResult read = read_scenario_text(
      "{schema: 1, name: ties, numerics: [fp32], model: {pattern: '-E', hidden: 1, vocab: 2, "
      "mlp: {hidden: 1}, moe: {experts: 3, top_k: 1, hidden: 1, pad_to_capacity: false, "
      "host_sync: true}, dropout: 0.889494}, data: {pack_length: 10, documents: [[[1, 9]]]}, "
      "training: {steps: 1, microbatches: 1}, cuda_graph: {impl: none}}",
      "text");
  ASSERT_TRUE(read.ok()) << read.errors.front().text();
  const CaseResult result =
      judge_case(read.scenario, {.planted = {.oracle = "moe-ties-go-to-the-highest-index"}});
  EXPECT_EQ(result.judge, JudgeKind::hazard);
  EXPECT_THAT(result.reason, testing::HasSubstr("(look, "));
  ASSERT_TRUE(result.wrong_op) << result.reason;
  EXPECT_EQ(result.wrong_op->op, "expert_counts");
  EXPECT_THAT(result.wrong_op->inputs,
              testing::ElementsAre(WrongOp::Input{"experts", "router_forward"}));
}

// One op alone is missing: of two products of the layer one ran.
TEST(OpWatch, NamesTheOpThatWasLeftOut) {
  Scenario scenario;
  scenario.numerics = {Numerics::fp32};
  const CaseResult result =
      judged_with("drop-op/eager/compute/mamba/in_proj/linear_weight_gradient/1", scenario);
  ASSERT_TRUE(result.wrong_op) << result.reason;
  EXPECT_EQ(result.wrong_op->op, "linear_weight_gradient");
  EXPECT_EQ(result.wrong_op->operand, "");
  EXPECT_EQ(result.wrong_op->layer, 0);
  EXPECT_TRUE(result.wrong_op->inputs.empty());
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
