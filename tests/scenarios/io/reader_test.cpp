// The meaning of legal files: defaults, the examples of the schema, places of errors in all stages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scenarios/documents/documents.h"
#include "scenarios/documents/raw_documents.h"
#include "scenarios/schema/schema.h"
#include "tests/scenarios/reading.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

Scenario scenario_of(const std::string& rest) {
  ReadStage stage = read_stage(with_head(rest), "file.yaml");
  for (const ScenarioError& error : stage.errors) ADD_FAILURE() << error.text();
  return stage.scenario;
}

// Section 3 of the schema as it is printed, with the two texts that have no default.
constexpr const char* kEveryDefault = R"(schema: 1
name: all-defaults
description: "what it is for"
numerics: [fp32]
model:
  pattern: "M*-"
  hidden: 32
  vocab: 64
  tied_embedding: false
  norm_eps: 1.0e-5
  attention:
    heads: 2
    kv_heads: 1
    head_dim: 16
    rope_base: 10000
  mamba:
    d_inner: 64
    head_dim: 16
    groups: 1
    state: 16
    conv_width: 4
    chunk: 16
  mlp:
    hidden: 64
    activation: squared_relu
  moe:
    experts: 4
    top_k: 2
    hidden: 32
    shared_hidden: 0
    router: softmax
    expert_bias: false
    capacity_factor: 2
    pad_to_capacity: true
    host_sync: false
    aux_loss: 0
    z_loss: 0
  dropout: 0
  recompute: []
  core_attention: native
data:
  kind: lengths
  pack_length: 64
  documents: [[[17, 1, 0, 30], [5, 16, 33]], [[64], [3, 4, 20, 15, 9]]]
  distribution:
    shape: uniform
    min: 1
    max: 32
    median: 8
    sigma: 1
    empty: 0
    fill: 0.9
    seed: 1
    histogram: []
  path: documents
  digest: ""
  long_documents: error
  mask:
    document_end: true
    prefix: 0
    rate: 0
    microbatches: []
    roles: [assistant]
  tail: extend_last
  align: 1
  gaps: 0
training:
  steps: 3
  microbatches: 2
  in_flight: 2
  optimizer:
    lr: 1.0e-3
    min_lr: 0
    schedule: constant
    lr_warmup: 0
    decay_steps: 3
    weight_decay: 0.01
    betas: [0.9, 0.95]
    eps: 1.0e-8
    clip: 1.0
  seed: 1
  eval_every: 0
  recapture_at: []
  change_microbatches_at: []
  resume_at: []
cuda_graph:
  impl: partial
  modules: []
  warmup_steps: 1
  max_packed_seqs: 8
  graph_memory_limit: 0
  max_seqlen: 64
  evaluation: eager
  capture_passes: 0
  shared_memory: false
offload:
  modules: []
  fraction: 1
  min_bytes: 0
  max_inflight: unlimited
  delay_until_cuda_graph: false
  pool_slack: 0
  captured: false
  delta_bytes: 0
fsdp:
  strategy: no_shard
  double_buffer: true
  persist_buf_on_alloc_fail: true
  unit: 1
  prefetch: 1
  reduction: ordered
  bucket_bytes: 0
  nccl_ub: false
parallel:
  data: 1
  context: 1
  tensor: 1
  expert: 1
  pipeline: 1
  transport: auto
  chunks: 1
  schedule: 1f1b
  group: 1
checker:
  hazards: true
  poison: [fresh, freed]
  delays: []
  schedule:
    kind: random
    depth: 1
    seed: 1
    count: 1
expect:
  verdict: holds
  error: none
  judge: none
  counters: {}
fp8:
  recipe: current
  history: 1024
  algorithm: max
  margin: 0
  save_original_input: []
  weight_cache: true
  param_gather: false
)";

TEST(Reader, EveryDefaultIsTheOneThatIsPrinted) {
  const ReadResult printed = read_scenario_text(kEveryDefault, "file.yaml");
  const ReadResult bare =
      read_scenario_text("schema: 1\nname: all-defaults\nnumerics: [fp32]\n", "file.yaml");
  ASSERT_TRUE(printed.ok()) << printed.errors.front().text();
  ASSERT_TRUE(bare.ok()) << bare.errors.front().text();
  EXPECT_EQ(canonical_form(printed.scenario), canonical_form(bare.scenario))
      << "edit kEveryDefault above: a key there has another default than in the schema";
  Scenario made;
  made.name = "all-defaults";
  EXPECT_EQ(canonical_form(made), canonical_form(bare.scenario))
      << "a field of scenarios/scenario.h has another default than its key in schema.cpp";
  // For keys that the canonical form leaves out here.
  for (const Key& key : schema()) {
    if (key.path == "description") continue;
    EXPECT_EQ(key.write(printed.scenario, Style::json), key.write(made, Style::json))
        << key.path << ": edit its line in kEveryDefault above, or its default in scenario.h";
  }
}

TEST(Reader, KnowsTheKeysInTheOrderThatIsPrinted) {
  std::vector<std::string> order;
  for (const Key& key : schema()) order.push_back(key.path.substr(key.path.rfind('.') + 1) + ":");
  std::size_t at = 0;
  for (const std::string& key : order) {
    const std::size_t found = std::string(kEveryDefault).find(key, at);
    ASSERT_NE(found, std::string::npos)
        << key << " is missing or too early: give it a line in kEveryDefault above, in the order "
        << "of scenarios/schema/schema.cpp";
    at = found + key.size();
  }
}

TEST(Reader, ComputesDefaultsFromOtherKeys) {
  const TemporaryFolder folder;
  folder.file("licences/a", std::string(2000, 'x'));
  folder.file(
      "a.yaml",
      with_head("data: {kind: text, path: licences}\ntraining: {steps: 7, microbatches: 1}\n"));
  const ReadResult text = read_scenario_file(folder / "a.yaml");
  for (const ScenarioError& error : text.errors) EXPECT_EQ(error.rule, "L00") << error.text();
  EXPECT_EQ(text.scenario.model.vocab, 256);
  EXPECT_EQ(text.scenario.data.long_documents, LongDocuments::split);
  EXPECT_EQ(text.scenario.training.in_flight, 1);
  EXPECT_EQ(text.scenario.training.optimizer.decay_steps, 7);
  EXPECT_EQ(text.scenario.folder, folder.path());

  const Scenario changed = scenario_of(
      "training: {steps: 4, microbatches: 4, change_microbatches_at: [{step: 2, microbatches: "
      "1}]}\n"
      "model: {moe: {capacity_factor: none}}\n");
  EXPECT_EQ(changed.training.in_flight, 1);
  EXPECT_FALSE(changed.model.moe.pad_to_capacity);
  EXPECT_EQ(scenario_of("training: {microbatches: 4}\n").training.in_flight, 2);
}

TEST(Reader, KeepsWhatIsGivenOverWhatIsComputed) {
  const Scenario given = scenario_of(
      "training: {steps: 7, microbatches: 4, in_flight: 3, optimizer: {decay_steps: 5}}\n");
  EXPECT_EQ(given.training.in_flight, 3);
  EXPECT_EQ(given.training.optimizer.decay_steps, 5);
}

TEST(Reader, ReadsValuesExactly) {
  const Scenario read = scenario_of(
      "numerics: [bf16, fp32]\n"
      "model: {dropout: 0.123456, norm_eps: 2.5e-7}\n"
      "training: {seed: 9007199254740991, optimizer: {betas: [0, 0.999]}}\n"
      "cuda_graph: {max_packed_seqs: [2, 8]}\n"
      "fsdp: {unit: [1, 1]}\n"
      "checker: {delays: [{stream: compute, spin: 9}], poison: [staging, fresh]}\n"
      "expect: {counters: {ops: {min: 1}, collectives: 0, bytes_reloaded: {same_as: "
      "bytes_planned}}}\n");
  EXPECT_THAT(read.numerics, ElementsAre(Numerics::fp32, Numerics::bf16));
  EXPECT_EQ(read.model.dropout.millionths, 123456);
  EXPECT_EQ(read.model.norm_eps, 2.5e-7);
  EXPECT_EQ(read.training.seed, 9007199254740991);
  EXPECT_EQ(read.training.optimizer.beta1, 0);
  EXPECT_EQ(read.training.optimizer.beta2, 0.999);
  EXPECT_THAT(read.cuda_graph.max_packed_seqs, ElementsAre(2, 8));
  EXPECT_TRUE(read.fsdp.unit_is_list);
  EXPECT_THAT(read.fsdp.unit, ElementsAre(1, 1));
  EXPECT_EQ(read.checker.delays.front().spin, 9);
  EXPECT_EQ(read.checker.delays.front().rank, std::nullopt);
  EXPECT_THAT(read.checker.poison, ElementsAre(Poison::fresh, Poison::staging));
  EXPECT_EQ(read.expect.counters.at(Counter::ops).min, 1);
  EXPECT_EQ(read.expect.counters.at(Counter::ops).max, std::nullopt);
  EXPECT_EQ(read.expect.counters.at(Counter::collectives).max, 0);
  EXPECT_EQ(read.expect.counters.at(Counter::bytes_reloaded).same_as, Counter::bytes_planned);
}

TEST(Reader, ReadsJsonAndMarkedFilesAlike) {
  const char* json =
      R"({"schema":1,"name":"a","model":{"hidden":64,"pattern":"M\u002a-"},"numerics":["fp32"]})";
  const std::string yaml = with_head("model:\n  hidden: 64\n");
  const std::string form = canonical_form(read_scenario_text(json, "a").scenario);
  EXPECT_EQ(form, canonical_form(read_scenario_text(yaml, "a").scenario));
  EXPECT_EQ(form, canonical_form(read_scenario_text("\xEF\xBB\xBF" + yaml, "a").scenario));
  EXPECT_EQ(form, canonical_form(read_scenario_text("---\n" + yaml + "...\n", "a").scenario));
}

// The six examples of the schema.
constexpr const char* kExamples[] = {
    R"(schema: 1
name: packed-fallback-mix
numerics: [fp32, bf16]
data: {documents: [[[20, 0, 30], [1, 2, 3, 4]], [[64], [16, 15, 17]]]}
training: {steps: 4}
cuda_graph: {max_packed_seqs: 3}
expect: {counters: {eager_fallbacks: 1, graph_replays: 20}}
)",
    R"(schema: 1
name: hybrid-in-flight-3
numerics: [fp32, bf16]
model: {pattern: "M-M*-", dropout: 0.1, tied_embedding: true}
training: {steps: 5, microbatches: 4, in_flight: 3, eval_every: 2, recapture_at: [3]}
cuda_graph: {modules: [attn, mamba]}
expect: {counters: {max_outstanding: 3, evaluations: 2, recaptures: 1, eager_fallbacks: 0}}
)",
    R"(schema: 1
name: moe-router-offload
numerics: [fp32, bf16]
model: {pattern: "*E*E", moe: {experts: 4, top_k: 2, capacity_factor: 1.25, shared_hidden: 16, aux_loss: 0.01}}
training: {steps: 4}
cuda_graph: {modules: [attn, moe_router, moe_preprocess]}
offload: {modules: [qkv_linear, core_attn, expert_fc1, moe_act], fraction: 0.5, delay_until_cuda_graph: true}
expect: {counters: {bytes_offloaded: {same_as: bytes_planned}, bytes_reloaded: {same_as: bytes_planned}}}
)",
    R"(schema: 1
name: fsdp-odd-unit
numerics: [fp32]
model: {pattern: "M*-M*-M"}
fsdp: {strategy: optim_grads_params, unit: 2}
parallel: {data: 3}
expect: {counters: {persistent_buffers: {min: 1}, eager_fallbacks: 0}}
)",
    R"(schema: 1
name: licence-texts
numerics: [fp32, bf16]
data: {kind: text, path: licences, pack_length: 256, align: 16, tail: append_dummy_seq}
training: {steps: 6, optimizer: {schedule: cosine, lr_warmup: 2}}
cuda_graph: {max_packed_seqs: [2, 8]}
)"};

TEST(Reader, AcceptsTheExamples) {
  const TemporaryFolder folder;
  folder.file("licences/a", std::string(20000, 'x'));
  for (const char* example : kExamples) {
    const std::string file = folder / "example.yaml";
    EXPECT_EQ(reading_error(example, file), "");
    // Legal scenarios that are not built yet are L00's business.
    const std::vector<ScenarioError> illegal = check_legality(read_stage(example, file).scenario);
    EXPECT_TRUE(illegal.empty()) << example << illegal.front().text();
  }
}

TEST(Reader, RefusesTheLastExampleByItsRule) {
  const ReadResult result = read_scenario_text(
      "schema: 1\nname: moe-twice\nnumerics: [fp32]\nmodel: {pattern: \"*E\"}\n"
      "cuda_graph: {modules: [moe, moe_router]}\nexpect: {verdict: refused, error: L17}\n",
      "six.yaml");
  EXPECT_EQ(result.rule(), "L17");
  EXPECT_EQ(result.scenario.expect.error, "L17");
  EXPECT_THAT(result.errors.front().text(), StartsWith("six.yaml:5:"));
}

TEST(Reader, GivesLegalityErrorsTheirPlaces) {
  const ReadResult heads =
      read_scenario_text(with_head("model:\n  attention:\n    heads: 4\n    kv_heads: "
                                   "3\ncuda_graph: {modules: [mlp, moe]}\n"),
                         "file.yaml");
  ASSERT_EQ(heads.errors.size(), 2u);
  EXPECT_THAT(heads.errors[0].text(), HasSubstr("[L01]"));
  EXPECT_THAT(heads.errors[0].text(),
              testing::AnyOf(StartsWith("file.yaml:5:12: "), StartsWith("file.yaml:6:15: ")));
  EXPECT_THAT(heads.errors[1].text(), HasSubstr("[L16]"));
  EXPECT_THAT(heads.errors[1].text(), StartsWith("file.yaml:7:"));
}

TEST(Reader, ReportsWhatIsNotBuiltAfterAllElse) {
  EXPECT_EQ(read_scenario_text(with_head("parallel: {tensor: 2}\n"), "f").rule(), "L00");
  EXPECT_EQ(read_scenario_text(
                with_head("parallel: {tensor: 2}\nmodel: {attention: {kv_heads: 3}}\n"), "f")
                .rule(),
            "L01");
  EXPECT_EQ(read_scenario_text(with_head("parallel: {tensor: 65}\n"), "f").rule(), "Y06");
  const ReadResult result = read_scenario_text(with_head("parallel: {tensor: 2}\n"), "f");
  EXPECT_THAT(result.errors.front().text(), StartsWith("f:3:20: parallel.tensor: "));
}

TEST(ErrorText, LeavesOutWhatIsNotKnown) {
  EXPECT_EQ((ScenarioError{"L01", "f", 3, 4, "key", "what", "why", "1"}.text()),
            "f:3:4: key: what [L01]: why; nearest legal: 1");
  EXPECT_EQ((ScenarioError{"L01", "f", 0, 0, "key", "what", "", ""}.text()),
            "f:1:1: key: what [L01]");
}

Scenario stored(const TemporaryFolder& folder, DataKind kind, const std::string& path) {
  Scenario scenario;
  scenario.data.kind = kind;
  scenario.data.path = path;
  scenario.folder = folder.path();
  return scenario;
}

TEST(RawDocuments, AreWalkedInByteOrderWithoutLinks) {
  const TemporaryFolder folder;
  for (const char* name : {"t/b", "t/a/z", "t/a.txt", "t/B", "t/\xc3\xa9", "t/.hidden"})
    folder.file(name, name);
  folder.file("outside/x", "outside");
  std::filesystem::create_symlink("b", folder / "t/0");
  std::filesystem::create_directory_symlink("../outside", folder / "t/1");
  std::vector<std::string> order;
  for (const RawDocument& document : read_raw_documents(stored(folder, DataKind::text, "t"))) {
    order.push_back(document.bytes);
    EXPECT_THAT(document.targets, ElementsAre(ByteSpan{0, document.bytes.size()}));
  }
  EXPECT_THAT(order, ElementsAre("t/.hidden", "t/B", "t/a.txt", "t/a/z", "t/b", "t/\xc3\xa9"));
}

TEST(RawDocuments, OfMessagesHaveTheContentsOfRolesAsTargets) {
  const TemporaryFolder folder;
  folder.file(
      "m.jsonl",
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes\n"}]})"
      "\r\n"
      R"({"text": "\u00e9"})");
  Scenario scenario = stored(folder, DataKind::jsonl, "m.jsonl");
  const std::vector<RawDocument> documents = read_raw_documents(scenario);
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0].bytes, "user: hi\nassistant: yes\n\n");
  EXPECT_THAT(documents[0].targets, ElementsAre(ByteSpan{20, 24}));
  EXPECT_EQ(documents[1].bytes, "\xc3\xa9");
  EXPECT_THAT(documents[1].targets, ElementsAre(ByteSpan{0, 2}));
  scenario.data.mask.roles = {"user", "assistant"};
  EXPECT_THAT(read_raw_documents(scenario)[0].targets,
              ElementsAre(ByteSpan{6, 8}, ByteSpan{20, 24}));
  scenario.data.mask.roles = {};
  EXPECT_TRUE(read_raw_documents(scenario)[0].targets.empty());
}

// The digest that a token or a checkpoint has is of the bytes that are trained on, whenever they
// are opened again.
TEST(RawDocuments, OfOtherBytesThanThoseThatWereReadAreRefused) {
  const TemporaryFolder folder;
  folder.file("t/a", "some documents");
  folder.file("r.jsonl", "{\"text\": \"some documents\"}\n");
  for (const auto& [kind, path] :
       {std::pair{DataKind::text, "t"}, std::pair{DataKind::jsonl, "r.jsonl"}}) {
    const std::string head = "schema: 1\nname: a\ndata: {kind: " +
                             std::string(kind == DataKind::text ? "text" : "jsonl") +
                             ", path: " + path + "}\n";
    const ReadResult read = read_scenario_text(head, folder / "a.yaml");
    ASSERT_TRUE(read.ok()) << text_of(read.errors);
    Scenario scenario = read.scenario;
    EXPECT_EQ(scenario.data.digest, "");
    EXPECT_EQ(read.data_digest, data_digest(scenario));
    scenario.data.digest = read.data_digest;
    EXPECT_EQ(read_raw_documents(scenario).size(), 1u);
    EXPECT_NO_THROW(open_data(scenario));
  }
  folder.file("t/a", "same documents");
  folder.file("r.jsonl", "{\"text\": \"same documents\"}\n");
  for (const auto& [kind, path, digest] :
       {std::tuple{DataKind::text, "t", "0"}, std::tuple{DataKind::jsonl, "r.jsonl", "0"}}) {
    Scenario scenario = stored(folder, kind, path);
    scenario.data.digest = digest;
    try {
      open_data(scenario);
      ADD_FAILURE() << path;
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr("has changed since it was first read"));
    }
  }
}

TEST(RawDocuments, HaveTheDigestThatMd5sumPrints) {
  const TemporaryFolder folder;
  folder.file("abc.jsonl", "abc");
  folder.file("empty.jsonl", "");
  folder.file("long.jsonl",
              "12345678901234567890123456789012345678901234567890123456789012345678901234567890");
  // RFC 1321, appendix A.5.
  EXPECT_EQ(data_digest(stored(folder, DataKind::jsonl, "abc.jsonl")),
            "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(data_digest(stored(folder, DataKind::jsonl, "empty.jsonl")),
            "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(data_digest(stored(folder, DataKind::jsonl, "long.jsonl")),
            "57edf4a22be3c955ac49da2e2107b67a");
  folder.file("t/a/abc", "abc");
  folder.file("t/empty", "");
  EXPECT_EQ(data_digest(stored(folder, DataKind::text, "t")), "c9aaef56527127c7cbb915a88f2e755d");
  EXPECT_THROW(data_digest(stored(folder, DataKind::jsonl, "missing")), std::runtime_error);
}

}  // namespace
}  // namespace lockstep
