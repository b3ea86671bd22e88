// What reading proposes instead of a key or a word that it refuses. Advice that would do harm when
// it is followed is not given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scenarios/schema/schema.h"
#include "tests/scenarios/reading.h"

namespace lockstep {
namespace {

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

TEST(Advice, FindsKeysByTheirNamesInMegatronAndElsewhereInTheFile) {
  const std::pair<const char*, const char*> cases[] = {
      {"cuda_graph: {scope: [attn]}", "cuda_graph.modules"},
      {"cuda_graph_scope: [attn]", "cuda_graph.modules"},
      {"data_parallel_sharding_strategy: optim", "fsdp.strategy"},
      {"fine_grained_activation_offloading: true", "offload.modules"},
      {"model: {num_layers: 4}", "model.pattern"},
      {"training: {lr: 1e-4}", "training.optimizer.lr"},
      {"model: {hiden: 4}", "hidden"},
  };
  for (const auto& [text, means] : cases) {
    EXPECT_THAT(reading_error(with_head(text)), EndsWith(std::string("nearest legal: ") + means))
        << text;
  }
}

TEST(Advice, NamesKeysThatExist) {
  ASSERT_GT(megatron_keys().size(), 30u);
  for (const auto& [theirs, ours] : megatron_keys()) EXPECT_NE(find_key(ours), nullptr) << theirs;
}

}  // namespace
}  // namespace lockstep
