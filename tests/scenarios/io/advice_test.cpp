// What reading proposes instead of a key or a word that it refuses. Advice that would do harm when
// it is followed is not given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scenarios/schema/schema.h"
#include "tests/scenarios/reading.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

// Values as people of other engines write them, and what they mean here.
TEST(Advice, KnowsTheWordsOfOtherEngines) {
  const std::pair<const char*, const char*> cases[] = {
      {"numerics: bf16", "[bf16]"},
      {"cuda_graph: {modules: attn mamba}", "[attn, mamba]"},
      {"cuda_graph: {modules: \"attn,mamba\"}", "[attn, mamba]"},
      {"cuda_graph: {impl: local}", "partial"},
      {"cuda_graph: {impl: transformer_engine}", "partial"},
      {"fsdp: {strategy: zero3}", "optim_grads_params"},
      {"fsdp: {strategy: ZeRO-1}", "optim"},
      {"fsdp: {strategy: optim-grads-params}", "optim_grads_params"},
      {"offload: {fraction: 50%}", "0.5"},
      {"cuda_graph: {impl: full_iter}", "full_iteration"},
      {"cuda_graph: {max_seqlen: 8k}", "8192"},
      {"data: {pack_length: 64K}", "65536"},
      {"offload: {min_bytes: 1M}", "1048576"},
      {"fsdp: {bucket_bytes: 40 MiB}", "41943040"},
      {"model: {moe: {capacity_factor: None}}", "none"},
      {"model: {core_attention: flash}", "native"},
      {"model: {recompute: selective}", "[core_attn]"},
      {"offload: {modules: qkv fc1}", "[qkv_linear, mlp_fc1]"},
      {"offload: {modules: [mlp]}", "mlp_fc1"},
  };
  for (const auto& [text, means] : cases) {
    EXPECT_THAT(reading_error(with_head(text)), EndsWith(std::string("nearest legal: ") + means))
        << text;
  }
}

TEST(Advice, IsNotGivenWhereNothingIsNear) {
  for (const char* text :
       {"numerics: [fp16]", "numerics: half", "cuda_graph: {impl: static}",
        "fsdp: {strategy: everything}", "cuda_graph: {modules: layers}", "documentation: x"}) {
    const std::string error = reading_error(with_head(text));
    EXPECT_NE(error, "") << text;
    EXPECT_THAT(error, Not(HasSubstr("nearest"))) << text;
  }
  EXPECT_THAT(reading_error(with_head("numerics: [fp16]")),
              HasSubstr("`fp16` is not one of the words [Y06]: it takes fp32 | bf16"));
}

// The nearest value must not be another one that was never meant.
TEST(Advice, SaysWhereToGoInPlaceOfAnotherValue) {
  const std::pair<const char*, const char*> cases[] = {
      {"cuda_graph: {max_packed_seqs: p99}",
       "it takes a number: `lockstep plan-packing FILE --at p99` gives it"},
      {"cuda_graph: {max_packed_seqs: [8, p90]}", "plan-packing FILE --at p90` gives it"},
      {"model: {hidden: 3x2}", "it takes int 1..16384"},
      {"cuda_graph: {modules: [full_iteration]}",
       "the whole iteration is cuda_graph.impl: full_iteration"},
      {"cuda_graph: {modules: full_iteration}", "cuda_graph.impl: full_iteration"},
      {"model: {recompute: full}", "whole layers are the list of their parts"},
      {"modules: [attn]", "sections cuda_graph, offload have a key of that name"},
  };
  for (const auto& [text, told] : cases) {
    const std::string error = reading_error(with_head(text));
    EXPECT_THAT(error, AllOf(HasSubstr(told), Not(HasSubstr("nearest")))) << text;
  }
}

TEST(Advice, FindsKeysByTheirNamesInMegatronAndElsewhereInTheFile) {
  const std::pair<const char*, const char*> cases[] = {
      {"cuda_graph: {scope: [attn]}", "cuda_graph.modules"},
      {"cuda_graph_scope: [attn]", "cuda_graph.modules"},
      {"data_parallel_sharding_strategy: optim", "fsdp.strategy"},
      {"fine_grained_activation_offloading: true", "offload.modules"},
      {"model: {num_layers: 4}", "model.pattern"},
      {"training: {lr: 1e-4}", "training.optimizer.lr"},
      {"model: {hiden: 4}", "hidden"},
      {"model: {mamba: {conv_kernel: 4}}", "model.mamba.conv_width"},
      {"model: {moe: {router_topk: 2}}", "model.moe.top_k"},
  };
  for (const auto& [text, means] : cases) {
    EXPECT_THAT(reading_error(with_head(text)), EndsWith(std::string("nearest legal: ") + means))
        << text;
  }
}

TEST(Advice, SaysWhatTheNearestKeyTakes) {
  const std::pair<const char*, const char*> cases[] = {
      {"model: {hiden: 4}",
       "[Y03]: model.hidden takes int 1..16384, in features: width of the residual stream;"},
      {"training: {lr: 1e-4}", "[Y03]: training.optimizer.lr takes number 0 <= x <= "},
      {"fsdp: {stratgy: zero}",
       "[Y03]: fsdp.strategy takes no_shard | optim | optim_grads | optim_grads_params: what is "
       "sharded over the ranks;"},
      {"chekcer: {}", "[Y03]: section checker has the keys hazards, poison, delays, schedule;"},
      {"offload: {bytes_at_least: 3}",
       "[Y03]: section offload has the keys modules, fraction, min_bytes, "},
      {"zebra: 3", "[Y03]: a file has the keys schema, name, description, numerics, model, "},
  };
  for (const auto& [text, says] : cases)
    EXPECT_THAT(reading_error(with_head(text)), HasSubstr(says)) << text;
}

TEST(Advice, SaysAllLevelsOfAListWhereBracketsAreMissing) {
  const std::pair<const char*, const char*> cases[] = {
      {"data: {documents: [[20, 30]]}",
       "data.documents: has 2 levels of brackets [Y05]: it takes [step][microbatch][length], such "
       "as [[[20, 30], [40]]] for two microbatches, the first of two documents; nearest legal: "
       "[[[20, 30]]]"},
      {"data: {documents: [20, 30]}", "has 1 level of brackets [Y05]: it takes [step]"},
      {"data: {documents: 20}", "has no levels of brackets [Y05]: it takes [step]"},
      {"data: {kind: distribution, distribution: {shape: histogram, histogram: [12, 3]}}",
       "histogram: has 1 level of brackets [Y05]: it takes pairs of documents and packs, such as "
       "[[12, 3], [40, 1]] for 3 packs of 12; nearest legal: [[12, 3]]"},
  };
  for (const auto& [text, says] : cases) {
    EXPECT_EQ(reading_rules(with_head(text)), "Y05") << text;
    EXPECT_THAT(reading_error(with_head(text)), HasSubstr(says)) << text;
  }
  EXPECT_THAT(reading_error(with_head(cases[1].first)), EndsWith("nearest legal: [[[20, 30]]]"));
  EXPECT_THAT(reading_error(with_head(cases[2].first)), EndsWith("nearest legal: [[[20]]]"));
  EXPECT_THAT(reading_error(with_head("data: {documents: [[20, x]]}")),
              HasSubstr("data.documents: has 2 levels of brackets"));
  // What brackets alone do not mend is told where it is.
  EXPECT_THAT(reading_error(with_head("data: {documents: [[[20, x]]]}")),
              HasSubstr("data.documents[0][0][1]: is `x`"));
  EXPECT_THAT(reading_error(with_head("data: {documents: [[[20], 30]]}")),
              HasSubstr("data.documents[0][1]: is `30`"));
}

TEST(Advice, NamesKeysThatExist) {
  ASSERT_GT(megatron_keys().size(), 30u);
  for (const auto& [theirs, ours] : megatron_keys()) EXPECT_NE(find_key(ours), nullptr) << theirs;
}

}  // namespace
}  // namespace lockstep
