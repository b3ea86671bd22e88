// lockstep's own engine behind the wire: it holds under every relation, and what is planted in it
// is found by the relation that names the machinery.
#include "tests/harness/foreign/own_engine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "harness/base/interrupts.h"
#include "harness/foreign/engine_host.h"
#include "harness/foreign/relation.h"
#include "harness/foreign/relation_parts.h"
#include "harness/generate/case.h"
#include "scenarios/io/reader.h"
#include "scenarios/schema/words.h"

namespace lockstep {
namespace {

using foreign::EngineHost;
using foreign::EngineResult;

// What each relation made of a case, for messages.
std::string text(const EngineResult& result) {
  std::string all = result.result.reason;
  for (const foreign::RelationOutcome& one : result.relations)
    all += "\n  " + one.id + " " + to_text(one.verdict) + " " + one.reason;
  return all + "\n  " + result.result.replay;
}

// Relations that found nothing where they applied.
std::set<std::string> applied(const EngineResult& result) {
  std::set<std::string> ids;
  for (const foreign::RelationOutcome& one : result.relations) {
    if (one.verdict != Verdict::skipped) ids.insert(one.id);
  }
  return ids;
}

// All scenarios, or those that together apply every relation.
TEST(OwnEngine, HoldsUnderEveryRelation) {
  const Interrupts pipes;
  const std::set<std::string> few{"eager", "offload", "ranks", "shards-eager", "whole-steps"};
  std::set<std::string> all;
  for (const auto& [name, scenario] : own_engine_scenarios()) {
    if (std::getenv("LOCKSTEP_SCENARIOS") == nullptr && !few.contains(name)) continue;
    EngineHost host({.command = own_engine_for(scenario)});
    const EngineResult result = host.judge(scenario);
    EXPECT_EQ(result.result.verdict, Verdict::holds) << name << ": " << text(result);
    EXPECT_TRUE(result.projected.empty()) << name << ": " << result.projected.front().key;
    all.merge(applied(result));
    host.close();
  }
  for (const foreign::Relation& relation : foreign::relations())
    EXPECT_TRUE(all.contains(relation.id)) << relation.id;
}

// The second microbatch of rank 1 does not fit.
TEST(OwnEngine, RanksFallBackAloneOrTogether) {
  for (const std::string impl : {"partial", "full_iteration"}) {
    const Scenario scenario =
        read_scenario_text(
            "schema: 1\nname: fits\nmodel: {pattern: \"-\"}\n"
            "data: {pack_length: 16, documents: [[[9], [9], [9], [3, 4, 5]]]}\n"
            "training: {steps: 3, microbatches: 2}\n"
            "cuda_graph: {impl: " +
                impl +
                ", max_packed_seqs: 2}\n"
                "parallel: {data: 2}\n",
            "x.yaml")
            .scenario;
    const foreign::GraphFit fit = foreign::graph_fit(scenario, foreign::make_feed(scenario));
    const bool whole = impl == "full_iteration";
    EXPECT_EQ(fit.too_large.least, 2) << impl;
    EXPECT_EQ(fit.too_large.most, 4) << impl;
    EXPECT_EQ(fit.replayed.least, whole ? 0 : 4) << impl;
    EXPECT_EQ(fit.replayed.most, whole ? 2 : 6) << impl;
  }
}

// A document of one token has no target, so its loss cannot tell that it was replaced.
TEST(OwnEngine, NeighboursWithoutTargetsSayNothing) {
  const Interrupts pipes;
  EngineHost host({.command = own_engine()});
  const EngineResult result =
      host.judge(read_scenario_text("schema: 1\nname: neighbours\nmodel: {pattern: \"*\"}\n"
                                    "data: {documents: [[[7, 1, 9]]]}\n"
                                    "training: {microbatches: 1}\ncuda_graph: {impl: none}\n",
                                    "x.yaml")
                     .scenario);
  EXPECT_TRUE(applied(result).contains("R6")) << text(result);
  EXPECT_EQ(result.result.verdict, Verdict::holds) << text(result);
  host.close();
}

// The only target of the odd documents lies in a row of which dropout takes every element, so that
// its logits are 0 and its loss is the logarithm of the vocabulary for any token. Of wider rows it
// cannot take all.
TEST(OwnEngine, NeighboursThatDropoutSilencesSayNothing) {
  const Interrupts pipes;
  EngineHost host({.command = own_engine(), .relations = {foreign::asked_relation("R6")}});
  for (const auto& [hidden, verdict] :
       std::map<std::string, Verdict>{{"1", Verdict::skipped}, {"512", Verdict::holds}}) {
    const EngineResult result =
        host.judge(read_scenario_text("schema: 1\nname: silent\n"
                                      "model: {pattern: \"-\", hidden: " +
                                          hidden +
                                          ", vocab: 3, mlp: {hidden: 1}, dropout: 0.9}\n"
                                          "data: {pack_length: 9, documents: [[[1, 1, 2]]]}\n"
                                          "training: {steps: 1, microbatches: 1, seed: 997}\n"
                                          "cuda_graph: {impl: none, max_packed_seqs: 1}\n",
                                      "x.yaml")
                       .scenario);
    ASSERT_FALSE(result.relations.empty()) << text(result);
    EXPECT_EQ(result.relations.back().verdict, verdict) << hidden << ": " << text(result);
  }
  host.close();
}

// Random scenarios as `lockstep fuzz` draws them: LOCKSTEP_SCENARIOS of them, or a few.
TEST(OwnEngine, RandomScenariosHold) {
  const Interrupts pipes;
  const char* const given = std::getenv("LOCKSTEP_SCENARIOS");
  const std::int64_t count = given ? std::atoll(given) : 4;
  EngineHost host({.command = own_engine()});
  std::int64_t judged = 0;
  for (std::int64_t index = 0; judged < count; ++index) {
    const CampaignCase one = make_case(24, index, "small");
    if (one.invalid) continue;
    ++judged;
    const EngineResult result = host.judge(one.scenario);
    EXPECT_EQ(result.result.verdict, Verdict::holds) << "case " << index << ": " << text(result);
  }
  host.close();
}

// Faults of each part of the machinery that a relation is about.
struct Planted {
  const char *fault, *scenario, *relation;
};
constexpr Planted kPlanted[] = {
    {"reload-takes-another-slot", "offload", "R3"},
    {"delayed-offload-ignores-compute", "experts", "R3"},
    {"recompute-of-norms-left-out", "eager", "R4"},
    {"recompute-of-scans-left-out", "eager", "R4"},
    {"reduce-dropped", "ranks", "R5"},
    {"target-of-the-next-document", "offload", "R6"},
    {"scan-keeps-state-across-documents", "graphs", "R7"},
    {"attention-reads-padded-lengths", "graphs", "R8"},
    {"fallback-truncates-to-capacity", "graphs", "R9"},
    {"gradients-not-zeroed-at-step-start", "offload", "R10"},
    {"microbatch-share-baked", "experts-change", "R10"},
    {"last-backward-pass-dropped", "offload", "R11"},
    {"router-losses-kept-by-slot", "experts", "R11b"},
    {"checkpoint-forgets-moments", "eager", "R13"},
    {"checkpoint-forgets-the-gradients-so-far", "shards", "R13"},
    {"load-keeps-the-step-begun", "shards", "R13"},
    {"offload-copies-twice", "offload-in-graphs", "R15"},
    {"eviction-forgets-what-it-freed", "evictions", "R15"},
    {"vectors-decay", "long", "R16b"},
    {"tied-gradient-overwritten", "long", "R16c"},
    {"rope-has-its-own-base", "model-dense", "R16"},
    {"attention-scale-forgets-the-root", "model-dense-bf16", "R16"},
    {"activation-backward-forgets-two", "model-dense-bf16", "R16"},
    {"cross-entropy-reads-wrong-target", "model-dense", "R16"},
    {"gated-norm-gates-after-norm", "model-scan", "R16"},
    {"combine-forgets-the-shared-expert", "model-experts", "R16"},
    {"dropout-layers-share-a-key", "model-dense", "R16"},
};

// Who reads tensors of a pass waits for the copies of what is offloaded, and so hides this race.
TEST(OwnEngine, ARunThatIsLessObservedWaitsForNoPass) {
  const Interrupts pipes;
  EngineHost host({.command = own_engine("reload-node-ignores-the-bin"),
                   .relations = {foreign::asked_relation("R1")}});
  const EngineResult result = host.judge(library_scenarios().at("offload-captured"));
  EXPECT_EQ(result.result.verdict, Verdict::violated) << text(result);
  EXPECT_NE(result.result.reason.find("less observed"), std::string::npos) << text(result);
}

// Evaluation keeps packs of a file from training; a run with other evaluations trains on the same.
TEST(OwnEngine, OtherEvaluationsLeaveTheDocumentsOfTraining) {
  const Interrupts pipes;
  EngineHost host({.command = own_engine(), .relations = {foreign::asked_relation("R13")}});
  Scenario chat = read_scenario_file(library_file("chat")).scenario;
  chat.numerics = {Numerics::bf16};
  const EngineResult result = host.judge(chat);
  EXPECT_TRUE(applied(result).contains("R13")) << text(result);
  EXPECT_EQ(result.result.verdict, Verdict::holds) << text(result);
  host.close();
}

TEST(OwnEngine, FaultsAreFoundByTheRelationThatNamesThem) {
  const Interrupts pipes;
  for (const Planted& planted : kPlanted) {
    SCOPED_TRACE(planted.fault);
    EngineHost host({.command = own_engine(planted.fault),
                     .deadline_s = 20,
                     .relations = {foreign::asked_relation(planted.relation)}});
    const EngineResult result = host.judge(own_engine_scenarios().at(planted.scenario));
    EXPECT_EQ(result.result.verdict, Verdict::violated) << text(result);
    EXPECT_TRUE(result.relation.starts_with(planted.relation)) << text(result);
  }
}

EngineResult judged_by_the_oracle(const std::string& scenario, const std::string& fault = "") {
  EngineHost host({.command = own_engine(fault), .relations = {foreign::asked_relation("R16")}});
  EngineResult result = host.judge(own_engine_scenarios().at(scenario));
  host.close();
  return result;
}

// Backward order is the other way round, so the later layer's gradient is named.
TEST(OwnEngine, TheOracleNamesTheFirstTensorInProgramOrder) {
  const Interrupts pipes;
  for (const auto& [fault, tensor] : std::map<std::string, std::string>{
           {"attention-query-heads-share-first-kv-head", "activation:layers.0.core_attn.out"},
           {"cross-entropy-reads-wrong-target", "token_loss:token_loss"},
           {"activation-backward-forgets-two", "gradient:layers.1.fc1.weight"},
           {"rope-backward-rotates-forward", "gradient:layers.0.qkv.weight"}}) {
    const EngineResult result = judged_by_the_oracle("model-dense", fault);
    ASSERT_TRUE(result.result.first_difference) << fault << text(result);
    EXPECT_EQ(result.result.first_difference->tensor, tensor) << fault;
  }
}

// A tolerance that nothing comes near, or that allows anything, would say nothing.
TEST(OwnEngine, TheOracleSaysHowMuchOfItsToleranceWasUsed) {
  const Interrupts pipes;
  for (const auto& [scenario, allowed] : std::map<std::string, double>{{"model-dense", 1e-4},
                                                                       {"model-experts", 1e-3},
                                                                       {"model-scan", 1e-2},
                                                                       {"model-dense-bf16", 0.5}}) {
    const EngineResult result = judged_by_the_oracle(scenario);
    ASSERT_EQ(result.result.verdict, Verdict::holds) << text(result);
    ASSERT_TRUE(result.relations.back().margin) << text(result);
    const foreign::Margin& margin = *result.relations.back().margin;
    EXPECT_GT(margin.used, 0.01) << scenario << " " << margin.tensor;
    EXPECT_LT(margin.used, 0.5) << scenario << " " << margin.tensor;
    EXPECT_LT(margin.allowed, allowed) << scenario << " " << margin.tensor;
  }
}

// Cases in which all of a gradient, or most of it, is what roundings of fp32 leave of it where they
// do not cancel, at places that nothing stores.
TEST(OwnEngine, TheOracleAllowsRoundingsThatDoNotCancel) {
  const Interrupts pipes;
  EngineHost host({.command = own_engine(), .relations = {foreign::asked_relation("R16")}});
  for (const auto& [name, body] : std::map<std::string, std::string>{
           // Every expert is chosen, so that the slope of the balance loss is the same for all, and
           // its gradient is what the scores' sum is off 1.
           {"all-experts",
            "model: {pattern: E, hidden: 1, vocab: 2, mlp: {hidden: 1}, "
            "moe: {experts: 2, hidden: 1, aux_loss: 1}}\n"
            "data: {pack_length: 2, documents: [[[2]]]}\n"
            "training: {steps: 1, microbatches: 1}\ncuda_graph: {impl: none}\n"},
           // Weight decay takes all of each weight and leaves one update, which is the same in
           // nearly all rows of the head: sums over them are of equal terms.
           {"equal-rows-of-the-head",
            "model: {pattern: \"*\", hidden: 48, vocab: 1032, attention: {rope_base: 100}, "
            "dropout: 0.5}\n"
            "data: {pack_length: 17, documents: [[[]], [[17]]], "
            "mask: {prefix: 2, microbatches: [3, 5]}}\n"
            "training: {steps: 4, microbatches: 8, seed: 396, optimizer: {lr: 0.1, min_lr: 1e-4, "
            "decay_steps: 5, weight_decay: 10, betas: [0.5, 0.9999], eps: 1}}\n"
            "cuda_graph: {impl: none}\n"}}) {
    const EngineResult result = host.judge(
        read_scenario_text("schema: 1\nname: " + name + "\nnumerics: [fp32]\n" + body, "x.yaml")
            .scenario);
    EXPECT_EQ(result.result.verdict, Verdict::holds) << text(result);
    ASSERT_TRUE(result.relations.back().margin) << text(result);
    EXPECT_LT(result.relations.back().margin->allowed, 1e-3) << text(result);
  }
  host.close();
}

// Positions of RoPE that run through a pack, and sums in another order, are the same function.
TEST(OwnEngine, TheOracleAllowsWhatDiffersByRoundingAlone) {
  const Interrupts pipes;
  for (const char* fault : {"rope-positions-of-the-pack", "cross-entropy-sums-sequentially",
                            "linear-weight-gradient-sums-backwards"}) {
    const EngineResult result = judged_by_the_oracle("model-dense", fault);
    EXPECT_EQ(result.result.verdict, Verdict::holds) << fault << text(result);
  }
}

}  // namespace
}  // namespace lockstep
