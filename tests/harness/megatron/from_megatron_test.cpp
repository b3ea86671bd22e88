#include "harness/megatron/from_megatron.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "harness/base/errors.h"
#include "harness/megatron/table.h"
#include "scenarios/io/reader.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kDense =
    "python pretrain_gpt.py --num-layers 4 --hidden-size 1024 --num-attention-heads 16 "
    "--seq-length 2048 --bf16 ";
const std::string kMegatronArithmetic =
    "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights "
    "--position-embedding-type rope --attention-dropout 0.0 --hidden-dropout 0 --swiglu "
    "--calculate-per-token-loss ";

FromMegatron from(const std::string& text, Sizes sizes = Sizes::small) {
  return from_megatron(MegatronRequest(text, "x.sh"), sizes, "x.sh");
}

std::string refusal(const std::string& text) {
  try {
    from(text);
  } catch (const RequestError& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> fields(const std::vector<FromMegatron::Left>& list) {
  std::vector<std::string> names;
  for (const FromMegatron::Left& left : list) names.push_back(left.field);
  std::sort(names.begin(), names.end());
  return names;
}

TEST(FromMegatron, ADenseModelKeepsItsSizes) {
  const FromMegatron got =
      from(kDense + kMegatronArithmetic +
               "--group-query-attention --num-query-groups 4 --ffn-hidden-size 2816 "
               "--micro-batch-size 2 --global-batch-size 64 --train-iters 100 "
               "--lr 3e-4 --vocab-size 32000",
           Sizes::keep);
  const Scenario& scenario = got.scenario;
  EXPECT_EQ(scenario.model.pattern, "*-*-*-*-");
  EXPECT_EQ(scenario.model.hidden, 1024);
  EXPECT_EQ(scenario.model.vocab, 32000);
  EXPECT_EQ(scenario.model.attention.heads, 16);
  EXPECT_EQ(scenario.model.attention.kv_heads, 4);
  EXPECT_EQ(scenario.model.attention.head_dim, 64);
  EXPECT_EQ(scenario.model.mlp.hidden, 2816);
  EXPECT_EQ(scenario.model.mlp.activation, MlpActivation::swiglu);
  EXPECT_EQ(scenario.data.pack_length, 4096);  // Two sequences.
  EXPECT_EQ(scenario.training.microbatches, 32);
  EXPECT_EQ(scenario.training.steps, 100);
  EXPECT_EQ(scenario.training.optimizer.lr, 3e-4);
  EXPECT_EQ(scenario.training.optimizer.beta2, 0.999);
  EXPECT_EQ(scenario.training.optimizer.schedule, LrSchedule::linear);
  EXPECT_EQ(scenario.cuda_graph.impl, GraphImpl::none);
  EXPECT_THAT(got.arithmetic, IsEmpty());
}

TEST(FromMegatron, DefaultsThatComputeSomethingElseAreListed) {
  EXPECT_THAT(fields(from(kDense).arithmetic),
              ElementsAre("activation", "add_bias_linear", "attention_dropout",
                          "calculate_per_token_loss", "normalization", "position_embedding_type"));
}

TEST(FromMegatron, AHybridModelWithPacksGraphsOffloadAndShards) {
  const FromMegatron got = from(
      "torchrun --nproc-per-node=4 --nnodes 2 pretrain_mamba.py --bf16 --hybrid-layer-pattern "
      "'M-M-M*-M-M-M*-M-M-' --hidden-size 4096 --num-attention-heads 32 --group-query-attention "
      "--num-query-groups 8 --kv-channels 128 --mamba-num-heads 128 --mamba-num-groups 8 "
      "--ffn-hidden-size 21504 --squared-relu --seq-length 8192 --sft "
      "--thd-max-packed-sequences 64 --pad-packed-seq-alignment 16 "
      "--thd-tail-padding-policy append_dummy_seq --cuda-graph-impl transformer_engine "
      "--cuda-graph-modules attn mamba --fine-grained-activation-offloading --offload-modules "
      "core_attn attn_proj fused_group_mlp --delta-offload-bytes-across-pp-ranks 1048576 "
      "--use-megatron-fsdp --fsdp-double-buffer "
      "--fsdp-db-use-persist-buf-on-alloc-fail --use-nccl-ub --tensor-model-parallel-size 2 " +
      kMegatronArithmetic);
  const Scenario& scenario = got.scenario;
  EXPECT_EQ(scenario.model.pattern, "M-M-M*-");
  EXPECT_EQ(scenario.model.attention.heads, 8);
  EXPECT_EQ(scenario.model.attention.kv_heads, 2);
  EXPECT_EQ(scenario.data.tail, Tail::append_dummy_seq);
  EXPECT_EQ(scenario.data.align, 4);
  EXPECT_EQ(scenario.data.distribution.shape, Shape::uniform);
  EXPECT_EQ(scenario.cuda_graph.impl, GraphImpl::partial);
  EXPECT_THAT(scenario.cuda_graph.modules, ElementsAre(GraphModule::attn, GraphModule::mamba));
  EXPECT_LT(scenario.cuda_graph.max_packed_seqs.front(),
            8);  // Packs of 64 rows have few documents.
  EXPECT_THAT(scenario.offload.modules,
              ElementsAre(OffloadModule::core_attn, OffloadModule::attn_proj));
  EXPECT_EQ(scenario.offload.delta_bytes, 1048576);
  EXPECT_EQ(scenario.fsdp.strategy, Sharding::optim_grads_params);
  EXPECT_EQ(scenario.parallel.data, 2);  // 8 processes, 2 of them for each tensor.
  EXPECT_EQ(scenario.parallel.tensor, 1);
  EXPECT_THAT(fields(got.machinery),
              AllOf(Contains("offload_modules"), Contains("nccl_ub"), Contains("cuda_graph_impl"),
                    Contains("tensor_model_parallel_size"), Contains("use_megatron_fsdp")));
}

TEST(FromMegatron, OnlyOneBranchHasSomeOptions) {
  const FromMegatron got =
      from(kDense + "--sequence-packing-scheduler dp_balanced --megatron-fsdp-version 2");
  std::map<std::string, std::string> why;
  for (const FromMegatron::Left& left : got.machinery) why[left.field] = left.why;
  EXPECT_THAT(why["sequence_packing_scheduler"], HasSubstr("of dev alone"));
  EXPECT_THAT(why["megatron_fsdp_version"], HasSubstr("of main alone"));
}

TEST(FromMegatron, AModelOfExperts) {
  const Scenario scenario =
      from(kDense +
           "--num-experts 64 --moe-router-topk 6 --moe-layer-freq [0,1,1,1] --moe-ffn-hidden-size "
           "768 --moe-router-score-function sigmoid --moe-router-enable-expert-bias "
           "--moe-aux-loss-coeff 1e-3 --moe-shared-expert-intermediate-size 1536 "
           "--cuda-graph-impl local --cuda-graph-modules attn moe_router")
          .scenario;
  EXPECT_EQ(scenario.model.pattern, "*-*E");
  EXPECT_EQ(scenario.model.moe.experts, 8);
  EXPECT_EQ(scenario.model.moe.top_k, 4);
  EXPECT_EQ(scenario.model.moe.router, Router::sigmoid);
  EXPECT_TRUE(scenario.model.moe.expert_bias);
  EXPECT_EQ(scenario.model.moe.capacity_factor, std::nullopt);
  EXPECT_EQ(scenario.model.moe.aux_loss.millionths, 1000);
}

TEST(FromMegatron, OldNamesOfGraphs) {
  EXPECT_EQ(from(kDense + "--enable-cuda-graph").scenario.cuda_graph.impl, GraphImpl::partial);
  const std::string whole = "--cuda-graph-impl local --cuda-graph-scope full_iteration";
  EXPECT_EQ(from(kDense + whole).scenario.cuda_graph.impl, GraphImpl::full_iteration);
  const Scenario modules = from(kDense + "--external-cuda-graph --cuda-graph-scope attn").scenario;
  EXPECT_THAT(modules.cuda_graph.modules, ElementsAre(GraphModule::attn));
}

TEST(FromMegatron, WhatTheRulesRefuseBecomesTheNearestLegalAndIsSaid) {
  const FromMegatron got =
      from(kDense +
           "--lr 1e-4 --recompute-granularity selective --recompute-modules layernorm "
           "--fine-grained-activation-offloading --offload-modules qkv_linear");
  ASSERT_EQ(got.changed.size(), 2u);  // And the number of processes.
  EXPECT_EQ(got.changed[1].key, "model.recompute");
  EXPECT_THAT(got.changed[1].why, HasSubstr("[L27]"));
  EXPECT_THAT(got.scenario.model.recompute, IsEmpty());
}

const std::string kLog =
    "[0]:------------------------ arguments ------------------------\n"
    "[0]:  add_bias_linear ................................. False\n"
    "[0]:  bf16 ............................................ True\n"
    "[0]:  cuda_graph_impl ................................. local\n"
    "[0]:  cuda_graph_modules .............................. [<CudaGraphModule.attn: 1>]\n"
    "[0]:  data_parallel_size .............................. 16\n"
    "[0]:  data_path ....................................... ['/a', '/b']\n"
    "[0]:  hidden_size ..................................... 4096\n"
    "[0]:  new_field ....................................... 7\n"
    "[0]:  num_attention_heads ............................. 32\n"
    "[0]:  num_layers ...................................... 32\n"
    "[0]:  padded_vocab_size ............................... 32000\n"
    "[0]:  params_dtype .................................... torch.bfloat16\n"
    "[0]:  seq_length ...................................... 4096\n"
    "[0]:-------------------- end of arguments ---------------------\n"
    "[0]:  hidden_size ..................................... 1\n";

TEST(FromMegatron, TheBlockOfArgumentsOfALog) {
  const MegatronRequest request(kLog, "x.log");
  EXPECT_TRUE(request.is_log());
  EXPECT_EQ(request.integer("hidden_size"), 4096);
  const FromMegatron got = from_megatron(request, Sizes::keep, "x.log");
  EXPECT_EQ(got.scenario.model.vocab, 32000);
  EXPECT_EQ(got.scenario.parallel.data, 16);
  EXPECT_THAT(got.scenario.cuda_graph.modules, ElementsAre(GraphModule::attn));
  EXPECT_THAT(got.unknown, ElementsAre("new_field"));
  EXPECT_THAT(fields(got.no_effect), ElementsAre("data_path"));
  EXPECT_THAT(fields(got.arithmetic), Not(Contains("add_bias_linear")));
}

TEST(FromMegatron, MalformedRequestsSayWhatIsWrong) {
  EXPECT_THAT(refusal(""), HasSubstr("neither a command line"));
  EXPECT_THAT(refusal("echo hello"), HasSubstr("neither a command line"));
  EXPECT_THAT(refusal("p.py --bf16"), HasSubstr("--num-layers is missing"));
  EXPECT_THAT(refusal(kDense + "--micro-batch-size"), HasSubstr("--micro-batch-size has no value"));
  EXPECT_THAT(refusal(kDense + "--lr 1 2"), HasSubstr("takes one value, and has also 2"));
  EXPECT_THAT(refusal(kDense + "--swiglu yes"), HasSubstr("--swiglu takes no value"));
  EXPECT_THAT(refusal(kDense + "--micro-batch-size two"),
              HasSubstr("x.sh:1: --micro-batch-size is two"));
  EXPECT_THAT(refusal(kDense + "--lr nan"), HasSubstr("--lr is nan, no number"));
  EXPECT_THAT(refusal("p.py words --bf16"), HasSubstr("words belongs to no option"));
  EXPECT_THAT(refusal(kDense + "\n" + kDense), HasSubstr("x.sh:2: a second command"));
  EXPECT_THAT(refusal(kDense + "--seq-length $S"), HasSubstr("$S is not set in this file"));
  EXPECT_THAT(refusal(kDense + "--hybrid-layer-pattern MX"), HasSubstr("has the symbol X"));
  EXPECT_THAT(refusal(kDense + "--cuda-graph-impl maybe"), HasSubstr("--cuda-graph-impl is maybe"));
  EXPECT_THAT(refusal("p.py --num-layers 1 --hidden-size 8 --num-attention-heads 1"),
              HasSubstr("--seq-length is missing"));
}

TEST(FromMegatron, AllThatIsMissingIsToldAtOnceWithWhatMayBeMisspelt) {
  EXPECT_THAT(refusal("p.py --bf16 --num-layer 4\n"),
              AllOf(HasSubstr("x.sh: --num-layers is missing (line 1 has --num-layer: misspelt?)"),
                    HasSubstr("also missing: --hidden-size, --num-attention-heads, --seq-length")));
  EXPECT_THAT(to_commented_yaml(from(kDense + "--sequence-packing"), "x.sh", Sizes::small),
              HasSubstr("--sequence-packing (nearest: --sequence-packing-scheduler)"));
}

TEST(FromMegatron, AllUnknownVariablesThatMatterAreToldAtOnce) {
  const std::string launcher =
      "torchrun --nproc-per-node 4 --nnodes=2 --node-rank $SLURM_NODEID "
      "--master-addr ${MASTER} $MORE $ROOT/";
  EXPECT_EQ(from(launcher + kDense.substr(7), Sizes::keep).scenario.parallel.data, 8);
  EXPECT_THAT(
      refusal(launcher + kDense.substr(7) +
              "\\\n --micro-batch-size $M --lr $(cat lr) "
              "--min-lr $M --seed $S"),
      HasSubstr("x.sh:2: $M is not set in this file: write its value in its place, or a line "
                "M=VALUE before it; also unknown: $(cat lr) (line 2), $S (line 2)"));
  EXPECT_THAT(refusal("torchrun --nproc-per-node $GPUS --nnodes=$NODES p.py --bf16"),
              AllOf(HasSubstr("$GPUS is not set"), HasSubstr("also unknown: $NODES (line 1)")));
  EXPECT_THAT(refusal("torchrun p.py \"$@\""), HasSubstr("$@ is not set"));
}

TEST(FromMegatron, ACommandInQuotesIsConverted) {
  const FromMegatron got = from(
      "export W=2\nsrun -N 2 bash -c \"torchrun --nnodes=$W --nproc-per-node 8 --node-rank "
      "\\$SLURM_NODEID " +
          kDense.substr(7) + "\"",
      Sizes::keep);
  EXPECT_EQ(got.scenario.parallel.data, 16);
}

TEST(FromMegatron, ControlBytesAreNotPrinted) {
  const FromMegatron got = from(kDense + "--save 'a\x1b[31m' --x-\x1b[1m 'y'");
  EXPECT_THAT(to_commented_yaml(got, "x\x1b.sh", Sizes::small), Not(HasSubstr("\x1b")));
  EXPECT_THAT(refusal(kDense + "--micro-batch-size '\x1b[31m'"), Not(HasSubstr("\x1b")));
}

TEST(FromMegatron, CommentsStayComments) {
  const FromMegatron got = from(kDense + "--optimizer 'a\nschema: 2' --tokenizer-model 'b\nc: d'");
  const ReadResult read =
      read_scenario_text(to_commented_yaml(got, "x\ny: z.sh", Sizes::small), "x.yaml");
  ASSERT_TRUE(read.ok()) << text_of(read.errors);
  EXPECT_EQ(canonical_form(read.scenario), canonical_form(got.scenario));
}

std::vector<std::string> changes(const FromMegatron& got) {
  std::vector<std::string> keys;
  for (const FromMegatron::Changed& one : got.changed) keys.push_back(one.key);
  return keys;
}

// Without its modules a scenario would capture whole layers.
TEST(FromMegatron, AMisspeltGraphModuleIsRefused) {
  for (const char* option : {"--cuda-graph-scope", "--cuda-graph-modules"}) {
    EXPECT_THAT(refusal(kDense + "--cuda-graph-impl local " + option + " atn"),
                AllOf(HasSubstr(std::string("x.sh:1: ") + option + " has atn"),
                      HasSubstr("; nearest: attn")));
  }
  EXPECT_EQ(refusal(kDense + "--cuda-graph-impl local --cuda-graph-scope full"), "");
}

TEST(FromMegatron, AGraphModuleWithoutItsLayerCapturesNothingElse) {
  const FromMegatron some =
      from(kDense + "--lr 1 --cuda-graph-impl local --cuda-graph-modules mamba attn");
  EXPECT_THAT(some.scenario.cuda_graph.modules, ElementsAre(GraphModule::attn));
  EXPECT_THAT(changes(some), Contains("cuda_graph.modules"));
  const FromMegatron none =
      from(kDense + "--lr 1 --cuda-graph-impl local --cuda-graph-modules moe mamba");
  EXPECT_EQ(none.scenario.cuda_graph.impl, GraphImpl::none);
  EXPECT_THAT(changes(none), Contains("cuda_graph.modules"));
}

TEST(FromMegatron, OffloadModulesAreOnlyEverLeftOut) {
  const std::string offload = "--lr 1 --fine-grained-activation-offloading --offload-modules ";
  const std::string graphs = " --cuda-graph-impl local";
  const std::string experts = kDense + "--num-experts 8 --cuda-graph-modules moe_router ";
  for (const std::string& text :
       {kDense + offload + "moe_act expert_fc1", kDense + offload + "mamba_scan attn_proj",
        experts + offload + "mlp_norm" + graphs}) {
    const FromMegatron got = from(text);
    EXPECT_THAT(got.scenario.offload.modules, IsEmpty()) << text;
    ASSERT_THAT(changes(got), Contains("offload.modules")) << text;
    EXPECT_THAT(
        to_commented_yaml(got, "x.sh", Sizes::small),
        AllOf(HasSubstr("nothing asked for can be offloaded here"), Not(HasSubstr("\noffload:"))))
        << text;
  }
  const FromMegatron got =
      from(experts + offload + "core_attn mlp_norm moe_act mamba_scan" + graphs);
  EXPECT_THAT(got.scenario.offload.modules,
              ElementsAre(OffloadModule::core_attn, OffloadModule::moe_act));
}

// docs/arithmetic.md, section 0: router logits, moments and accumulators are fp32 always.
TEST(FromMegatron, WhatLockstepAlwaysDoesIsNoOtherArithmetic) {
  const std::string asked =
      "--accumulate-allreduce-grads-in-fp32 --attention-softmax-in-fp32 "
      "--use-rotary-position-embeddings --moe-router-dtype ";
  const FromMegatron got = from(kDense + asked + "fp32");
  EXPECT_THAT(fields(got.as_here),
              ElementsAre("accumulate_allreduce_grads_in_fp32", "attention_softmax_in_fp32",
                          "moe_router_dtype", "use_rotary_position_embeddings"));
  EXPECT_THAT(fields(got.arithmetic), Not(Contains("position_embedding_type")));
  EXPECT_THAT(fields(from(kDense + asked + "fp64").arithmetic), Contains("moe_router_dtype"));
}

TEST(FromMegatron, EveryOtherArithmeticHasAReason) {
  for (const MegatronOption& option : megatron_options()) {
    if (option.without_key != WithoutKey::arithmetic) continue;
    if (option.takes != MegatronOption::Takes::sets) continue;
    if (option.option == "fp16" || option.option == "is-hybrid-model") continue;
    for (const FromMegatron::Left& left : from(kDense + "--" + option.option).arithmetic)
      EXPECT_NE(left.why, "") << left.field;
  }
}

TEST(FromMegatron, ShardingHasTwoRanksEvenWhereNobodySaysHowMany) {
  for (const char* how : {"--use-megatron-fsdp", "--use-distributed-optimizer", "--use-torch-fsdp2",
                          "--use-distributed-optimizer --tensor-model-parallel-size 8"}) {
    const FromMegatron got = from("srun " + kDense + how);
    EXPECT_EQ(got.scenario.parallel.data, 2) << how;
    const auto said = std::find_if(got.changed.begin(), got.changed.end(),
                                   [](const auto& one) { return one.key == "parallel.data"; });
    ASSERT_NE(said, got.changed.end()) << how;
    EXPECT_THAT(said->why, HasSubstr("sharding on one rank tests little"));
  }
  EXPECT_EQ(from("srun " + kDense).scenario.parallel.data, 1);
  EXPECT_EQ(from(kDense + "--use-megatron-fsdp", Sizes::keep).scenario.parallel.data, 1);
}

TEST(FromMegatron, SmallSizesStillShowWhatWasAskedFor) {
  const FromMegatron got =
      from(kDense +
           "--sft --thd-max-packed-sequences 106 --cuda-graph-impl local --use-megatron-fsdp "
           "--fsdp-double-buffer --global-batch-size 8");
  const TemporaryFolder folder;
  const std::string file = folder.file("x.yaml", to_commented_yaml(got, "x.sh", Sizes::small));
  const Ran described = run_lockstep("describe " + file);
  EXPECT_THAT(described.out, Not(HasSubstr("no more than two units")));
  const Ran verified = run_lockstep("verify --device sim --json - " + file);
  EXPECT_EQ(verified.status, 0) << verified.err;
  for (const char* counter : {"\"graph_replays\"", "\"eager_fallbacks\""}) {
    EXPECT_THAT(verified.out, HasSubstr(counter));
    EXPECT_THAT(verified.out, Not(HasSubstr(std::string(counter) + ":0,"))) << counter;
  }
  EXPECT_EQ(got.scenario.model.pattern, "*-*-*-");
}

TEST(FromMegatron, WhatSmallSizesChangeIsListed) {
  const std::string text = kDense +
                           "--num-experts 64 --moe-router-topk 6 --train-iters 100 --sft "
                           "--cuda-graph-impl local --thd-max-packed-sequences 106";
  EXPECT_THAT(from(text).made_small,
              AllOf(Contains("model.hidden 1024 -> 32"), Contains("model.moe.top_k 6 -> 4"),
                    Contains("training.steps 100 -> 5"), Contains("data.pack_length 2048 -> 64"),
                    Contains(HasSubstr("cuda_graph.max_packed_seqs 106 -> "))));
  EXPECT_THAT(from(text, Sizes::keep).made_small, IsEmpty());
}

TEST(FromMegatron, WhatHasNoEffectWithoutItsSwitchIsSaid) {
  const FromMegatron got = from(kDense +
                                "--offload-modules core_attn --cuda-graph-scope attn "
                                "--fsdp-double-buffer");
  EXPECT_THAT(fields(got.no_effect),
              ElementsAre("cuda_graph_scope_deprecated", "fsdp_double_buffer", "offload_modules"));
  EXPECT_THAT(to_commented_yaml(got, "x.sh", Sizes::small),
              HasSubstr("no effect without --fine-grained-activation-offloading"));
}

TEST(FromMegatron, ARefusedDefaultOfMegatronIsNotCalledAsked) {
  const FromMegatron got = from(kDense +
                                "--lr 1 --hybrid-layer-pattern M-M* --cuda-graph-impl local "
                                "--use-megatron-fsdp --fsdp-double-buffer");
  EXPECT_THAT(to_commented_yaml(got, "x.sh", Sizes::small),
              HasSubstr("fsdp.persist_buf_on_alloc_fail: true: Megatron's default false is refused "
                        "here: "));
}

// The table names fields that Megatron has, and keys that a scenario has.
TEST(FromMegatron, TheTableNamesWhatThereIs) {
  const auto is_field = [](const char* name) { return find_megatron_field(name) != nullptr; };
  for (const PlainKey& row : plain_keys()) EXPECT_TRUE(is_field(row.field)) << row.field;
  for (const FixedField& row : fixed_fields()) EXPECT_TRUE(is_field(row.field)) << row.field;
  for (const Remark& row : remarks()) EXPECT_TRUE(is_field(row.field)) << row.field;
  EXPECT_EQ(find_megatron_option("--norm-epsilon")->field, "layernorm_epsilon");
  EXPECT_EQ(find_megatron_option("--hidden"), nullptr);
  EXPECT_GT(megatron_options().size(), 900u);
}

// Whatever is asked for, the scenario is legal and reads back, or the request is refused.
RC_GTEST_PROP(FromMegatron, AnyOptionsGiveALegalScenarioOrARefusal, ()) {
  std::string text = kDense;
  for (int i = *rc::gen::inRange(0, 12); i > 0; --i) {
    const MegatronOption& option = *rc::gen::elementOf(megatron_options());
    text += "--" + option.option + " ";
    if (option.takes == MegatronOption::Takes::one || option.takes == MegatronOption::Takes::many)
      text += *rc::gen::element<std::string>("1", "2", "64", "0", "0.5", "1e-3", "999999999999",
                                             "core_attn", "attn", "local", "full", "selective",
                                             "optim", "M*-E", "[1, 0]", "None") +
              (option.takes == MegatronOption::Takes::many ? " moe_act " : " ");
  }
  text = text.find("[1, 0]") == std::string::npos
             ? text
             : text.replace(text.find("[1, 0]"), 6, "'[1, 0]'");
  const Sizes sizes = *rc::gen::element(Sizes::small, Sizes::keep);
  try {
    const FromMegatron got = from(text, sizes);
    const ReadResult read = read_scenario_text(to_commented_yaml(got, "x.sh", sizes), "x.yaml");
    RC_ASSERT(read.ok());
    RC_ASSERT(canonical_form(read.scenario) == canonical_form(got.scenario));
  } catch (const RequestError& error) {
    RC_ASSERT(std::string(error.what()).size() > 5u);
  }
}

TEST(FromMegatron, TheCommandsTakeSuchAFile) {
  const TemporaryFolder folder;
  const std::string file = folder.file("run.sh", kDense + kMegatronArithmetic + "--lr 1e-3");
  const Ran described = run_lockstep("describe --from-megatron " + file);
  EXPECT_EQ(described.status, 0) << described.err;
  EXPECT_THAT(described.out, AllOf(HasSubstr("# Not carried, arithmetic"), HasSubstr("schema: 1")));
  const std::string yaml = folder / "run.yaml";
  EXPECT_EQ(run_lockstep("describe --from-megatron " + file + " --yaml " + yaml).status, 0);
  EXPECT_EQ(slurp(yaml), described.out);
  EXPECT_EQ(run_lockstep("verify --device sim " + yaml).status, 0);
  const Ran verified = run_lockstep("verify --device sim --from-megatron " + file);
  EXPECT_EQ(verified.status, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("from-megatron-run"));
  EXPECT_EQ(run_lockstep("describe --from-megatron " + (folder / "nowhere")).status, 2);
  EXPECT_EQ(run_lockstep("describe --from-megatron " + file + " --yaml " + file).status, 2);
  EXPECT_EQ(run_lockstep("describe --from-megatron /dev/zero").status, 2);
}

}  // namespace
}  // namespace lockstep
