// The canonical form and the YAML writer: what they print, and that reading gives the same scenario
// back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "scenarios/pass_order.h"
#include "tests/scenarios/random_scenario.h"
#include "tests/scenarios/reading.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string form_of(const std::string& rest) {
  const ReadStage stage = read_stage(with_head(rest), "file.yaml");
  for (const ScenarioError& error : stage.errors) ADD_FAILURE() << error.text();
  return canonical_form(stage.scenario);
}

TEST(CanonicalForm, IsOneLineOfEveryKeyInOrder) {
  EXPECT_EQ(
      canonical_form(named("x")),
      R"({"schema":1,"name":"x","description":"","numerics":["fp32"],)"
      R"("model":{"pattern":"M*-","hidden":32,"vocab":64,"tied_embedding":false,"norm_eps":1e-05,)"
      R"("attention":{"heads":2,"kv_heads":1,"head_dim":16,"rope_base":10000},)"
      R"("mamba":{"d_inner":64,"head_dim":16,"groups":1,"state":16,"conv_width":4,"chunk":16},)"
      R"("mlp":{"hidden":64,"activation":"squared_relu"},)"
      R"("moe":{"experts":4,"top_k":2,"hidden":32,"shared_hidden":0,"router":"softmax","expert_bias":false,)"
      R"("capacity_factor":2,"pad_to_capacity":true,"host_sync":false,"aux_loss":0,"z_loss":0},)"
      R"("dropout":0,"recompute":[],"core_attention":"native"},)"
      R"("data":{"kind":"lengths","pack_length":64,"documents":[[[17,1,0,30],[5,16,33]],[[64],[3,4,20,15,9]]],)"
      R"("long_documents":"error","mask":{"document_end":true,"prefix":0,"rate":0,"microbatches":[]},)"
      R"("tail":"extend_last","align":1,"gaps":0},)"
      R"("training":{"steps":3,"microbatches":2,"in_flight":2,"optimizer":{"lr":0.001,"min_lr":0,)"
      R"("schedule":"constant","lr_warmup":0,"decay_steps":3,"weight_decay":0.01,"betas":[0.9,0.95],"eps":1e-08,)"
      R"("clip":1},"seed":1,"eval_every":0,"recapture_at":[],"change_microbatches_at":[]},)"
      R"("cuda_graph":{"impl":"partial","modules":[],"warmup_steps":1,"max_packed_seqs":8,"graph_memory_limit":0},)"
      R"("offload":{"modules":[],"fraction":1,"min_bytes":0,"max_inflight":"unlimited",)"
      R"("delay_until_cuda_graph":false,"pool_slack":0},)"
      R"("fsdp":{"strategy":"no_shard","double_buffer":true,"persist_buf_on_alloc_fail":true,"unit":1,"prefetch":1,)"
      R"("reduction":"ordered","bucket_bytes":0,"nccl_ub":false},)"
      R"("parallel":{"data":1,"context":1,"tensor":1,"expert":1,"pipeline":1,"transport":"auto"},)"
      R"("checker":{"hazards":true,"poison":["fresh","freed"],"delays":[],)"
      R"("schedule":{"kind":"random","depth":1,"seed":1,"count":1}},)"
      R"("expect":{"verdict":"holds","error":"none","judge":"none","counters":{}}})")
      << "a new key belongs into added(...) in scenarios/schema/schema.cpp, which leaves it out "
         "where it has its default: old tokens and documents keep their bytes. This text stays";
}

TEST(CanonicalForm, IsEqualForFilesThatMeanTheSame) {
  const auto same = [](const char* a, const char* b) { EXPECT_EQ(form_of(a), form_of(b)) << a; };
  same("description: it is for this\n", "");
  same("numerics: [bf16, fp32]\n", "numerics: [fp32, bf16]\n");
  same("training: {optimizer: {lr: 1.0e-3}}\n", "training: {optimizer: {lr: 0.001000}}\n");
  same("training: {optimizer: {min_lr: -0.0}}\n", "");
  same("model: {dropout: 0.100000}\n", "model: {dropout: 0.1}\n");
  same("cuda_graph: {max_packed_seqs: [4]}\n", "cuda_graph: {max_packed_seqs: 4}\n");
  same("expect: {counters: {ops: {min: 3, max: 3}}}\n", "expect: {counters: {ops: 3}}\n");
  same("checker: {delays: [{stream: d2h, spin: 1, rank: all}]}\n",
       "checker: {delays: [{stream: d2h, spin: 1}]}\n");
  same("cuda_graph: {max_seqlen: 20}\ndata: {pack_length: 20, documents: [[[1]]]}\n",
       "data: {pack_length: 20, documents: [[[1]]]}\n");
  // The longest document of these shapes is a pack unless the file says otherwise.
  same("data: {kind: distribution, distribution: {shape: published, max: 64}}\n",
       "data: {kind: distribution, distribution: {shape: published}}\n");
  same("data: {distribution: {shape: equal}}\n", "");  // Kind lengths reads no distribution.
}

TEST(CanonicalForm, DiffersForFilesThatDiffer) {
  const auto differ = [](const char* a, const char* b) { EXPECT_NE(form_of(a), form_of(b)) << a; };
  differ("fsdp: {unit: [1]}\n", "fsdp: {unit: 1}\n");
  differ("model: {moe: {capacity_factor: none}}\n", "");
  differ("expect: {counters: {ops: {min: 3}}}\n", "expect: {counters: {ops: {max: 3}}}\n");
  differ("offload: {max_inflight: 0}\n", "");
  differ("training: {optimizer: {lr: 0.1}}\n",
         "training: {optimizer: {lr: 0.10000000000000002}}\n");
  differ("model: {dropout: 0.000001}\n", "");
}

TEST(CanonicalForm, HoldsOnlyWhatTheKindReads) {
  Scenario scenario = named("x");
  scenario.data.kind = DataKind::distribution;
  EXPECT_THAT(canonical_form(scenario), HasSubstr(R"("distribution":{"shape":"uniform","min":1,)"));
  EXPECT_THAT(canonical_form(scenario), Not(HasSubstr("documents\":[")));
  scenario.data.kind = DataKind::text;
  EXPECT_THAT(canonical_form(scenario),
              HasSubstr(R"("pack_length":64,"path":"documents","digest":"",)"));
  EXPECT_THAT(canonical_form(scenario), Not(HasSubstr("distribution")));
  EXPECT_THAT(canonical_form(scenario), Not(HasSubstr("roles")));
  scenario.data.kind = DataKind::jsonl;
  EXPECT_THAT(canonical_form(scenario), HasSubstr(R"("microbatches":[],"roles":["assistant"]},)"));
}

// So that canonical forms and tokens from before a key existed keep their bytes.
TEST(CanonicalForm, HoldsALaterKeyOnlyWhereItDiffersFromItsDefault) {
  Scenario scenario = named("x");
  const std::string plain = canonical_form(scenario);
  EXPECT_THAT(plain, HasSubstr(R"("graph_memory_limit":0},)"));
  scenario.cuda_graph.max_seqlen = scenario.data.pack_length;
  EXPECT_EQ(canonical_form(scenario), plain);
  scenario.cuda_graph.max_seqlen = 63;
  scenario.cuda_graph.evaluation = GraphEvaluation::replay;
  scenario.cuda_graph.capture_passes = 3;
  scenario.cuda_graph.shared_memory = true;
  EXPECT_THAT(
      canonical_form(scenario),
      HasSubstr(
          R"("graph_memory_limit":0,"max_seqlen":63,"evaluation":"replay","capture_passes":3,)"
          R"("shared_memory":true},)"));
  EXPECT_THAT(to_full_yaml(named("x")),
              HasSubstr("  max_seqlen: 64\n  evaluation: eager\n  capture_passes: 0\n"
                        "  shared_memory: false\n"));
}

// The number in flight follows from the schedule there, so a form that held it could not be read
// where it is beyond the range of the key.
TEST(CanonicalForm, LeavesOutADepthThatFollowsFromTheSchedule) {
  Scenario scenario = named("x");
  EXPECT_THAT(canonical_form(scenario), HasSubstr(R"("in_flight":2,)"));
  EXPECT_THAT(canonical_form(scenario), Not(HasSubstr(R"("group":)")));
  scenario.training.microbatches = 40;
  scenario.parallel.schedule = PipelineSchedule::gpipe;
  scenario.training.in_flight = scheduled_depth(scenario);
  const std::string form = canonical_form(scenario);
  EXPECT_THAT(form, Not(HasSubstr("in_flight")));
  EXPECT_THAT(form, HasSubstr(R"("transport":"auto","schedule":"gpipe"},)"));
  const TemporaryFolder folder;
  EXPECT_EQ(read_stage(form, folder / "a.yaml").scenario.training.in_flight, 40);
}

TEST(CanonicalForm, ReadsBackEqual) {
  const TemporaryFolder folder;
  write_documents(folder);
  EXPECT_TRUE(rc::check("canonical form reads back equal", [&] {
    const Scenario scenario = *random_scenario(folder.path());
    const std::string form = canonical_form(scenario);
    RC_ASSERT(form.find('\n') == std::string::npos);
    const ReadStage stage = read_stage(form, folder / "a.yaml");
    if (!stage.errors.empty()) RC_FAIL(stage.errors.front().text());
    RC_ASSERT(canonical_form(stage.scenario) == form);
  }));
}

TEST(Yaml, ReadsBackEqual) {
  const TemporaryFolder folder;
  write_documents(folder);
  EXPECT_TRUE(rc::check("YAML reads back equal", [&] {
    const Scenario scenario = *random_scenario(folder.path());
    const ReadStage stage = read_stage(to_yaml(scenario), folder / "a.yaml");
    if (!stage.errors.empty()) RC_FAIL(stage.errors.front().text() + "\n" + to_yaml(scenario));
    RC_ASSERT(canonical_form(stage.scenario) == canonical_form(scenario));
    RC_ASSERT(stage.scenario.description == scenario.description);
    RC_ASSERT(to_yaml(stage.scenario) == to_yaml(scenario));
  }));
}

TEST(Yaml, HoldsOnlyWhatDiffers) {
  EXPECT_EQ(to_yaml(named("x")), "schema: 1\nname: x\nnumerics: [fp32]\n");
  Scenario scenario = named("y-1");
  scenario.description = "it's \"this\": for";
  scenario.model.pattern = "*E";
  scenario.model.attention.heads = 4;
  scenario.model.moe.capacity_factor = std::nullopt;
  scenario.model.moe.pad_to_capacity = false;  // What capacity_factor makes of it.
  scenario.training.steps = 5;
  scenario.training.optimizer.decay_steps = 3;  // Not what steps makes of it.
  scenario.training.microbatches = 1;
  scenario.training.in_flight = 1;
  scenario.cuda_graph.modules = {GraphModule::attn};
  scenario.expect.counters[Counter::ops].min = 1;
  EXPECT_EQ(to_yaml(scenario),
            "schema: 1\n"
            "name: y-1\n"
            "description: \"it's \\\"this\\\": for\"\n"
            "numerics: [fp32]\n"
            "model:\n"
            "  pattern: \"*E\"\n"
            "  attention:\n"
            "    heads: 4\n"
            "  moe:\n"
            "    capacity_factor: none\n"
            "training:\n"
            "  steps: 5\n"
            "  microbatches: 1\n"
            "  optimizer:\n"
            "    decay_steps: 3\n"
            "cuda_graph:\n"
            "  modules: [attn]\n"
            "expect:\n"
            "  counters: {ops: {min: 1}}\n");
}

// Scenarios made in memory have no defaults that follow from other keys.
TEST(Canonical, HasKeysOfFp8WithFp8Alone) {
  Scenario s;
  s.name = "a";
  s.model.recompute = {Recompute::layernorm};
  s.fsdp.strategy = Sharding::optim_grads_params;
  s.fp8.recipe = Fp8Recipe::delayed;
  EXPECT_EQ(canonical_form(s).find("fp8"), std::string::npos);
  EXPECT_EQ(to_yaml(s).find("fp8"), std::string::npos);
  s.numerics = {Numerics::fp8};
  EXPECT_NE(canonical_form(s).find(R"("recipe":"delayed")"), std::string::npos);
  EXPECT_NE(to_yaml(s).find("recipe: delayed"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
