// What is legal but not built yet is refused by name (L00).
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "scenarios/rules/check.h"

namespace lockstep {
namespace {

void in_fp8(Scenario& s) { s.numerics = {Numerics::fp8}; }
void shard(Scenario& s) { s.fsdp.strategy = Sharding::optim_grads_params; }

TEST(Built, EveryPrecisionHasEverySymbol) {
  Scenario scenario;
  scenario.model.pattern = "M*E-";
  scenario.numerics = {Numerics::fp32, Numerics::bf16, Numerics::fp8};
  EXPECT_TRUE(check_built(scenario).empty());
}

// Each feature asks for itself alone, and is refused exactly if the list says that it is not built.
TEST(Built, ListAndRefusalsAgree) {
  const std::map<std::string, std::function<void(Scenario&)>> asks{
      {"numerics: bf16", [](Scenario& s) { s.numerics = {Numerics::bf16}; }},
      {"model.pattern: E", [](Scenario& s) { s.model.pattern = "*E"; }},
      {"model.recompute", [](Scenario& s) { s.model.recompute = {Recompute::layernorm}; }},
      {"model.core_attention: cudnn",
       [](Scenario& s) { s.model.core_attention = CoreAttention::cudnn; }},
      {"cuda_graph.impl: full_iteration",
       [](Scenario& s) { s.cuda_graph.impl = GraphImpl::full_iteration; }},
      {"cuda_graph.graph_memory_limit", [](Scenario& s) { s.cuda_graph.graph_memory_limit = 1; }},
      {"offload.modules", [](Scenario& s) { s.offload.modules = {OffloadModule::core_attn}; }},
      {"fsdp.strategy", shard},
      {"fsdp.reduction: nccl", [](Scenario& s) { shard(s), s.fsdp.reduction = Reduction::nccl; }},
      {"fsdp.nccl_ub", [](Scenario& s) { s.fsdp.nccl_ub = true; }},
      {"parallel.data", [](Scenario& s) { s.parallel.data = 2; }},
      {"parallel.context", [](Scenario& s) { s.parallel.context = 2; }},
      {"parallel.tensor", [](Scenario& s) { s.parallel.tensor = 2; }},
      {"parallel.expert", [](Scenario& s) { s.parallel.expert = 2; }},
      {"parallel.pipeline", [](Scenario& s) { s.parallel.pipeline = 2; }},
      {"parallel.transport: shm", [](Scenario& s) { s.parallel.transport = Transport::shm; }},
      {"parallel.transport: nccl", [](Scenario& s) { s.parallel.transport = Transport::nccl; }},
      {"checker.poison: padding", [](Scenario& s) { s.checker.poison = {Poison::padding}; }},
      {"checker.poison: staging", [](Scenario& s) { s.checker.poison = {Poison::staging}; }},
      {"checker.delays", [](Scenario& s) { s.checker.delays = {{}}; }},
      {"numerics: fp8", in_fp8},
      {"model.pattern: E in fp8", [](Scenario& s) { in_fp8(s), s.model.pattern = "*E"; }},
      {"fp8.recipe: delayed", [](Scenario& s) { in_fp8(s), s.fp8.recipe = Fp8Recipe::delayed; }},
  };
  std::map<std::string, bool> built;
  for (const Feature& feature : features()) built[feature.key] = feature.built;
  for (const auto& [key, ask] : asks) {
    SCOPED_TRACE(key);
    ASSERT_TRUE(built.contains(key));
    Scenario scenario;
    ask(scenario);
    const auto errors = check_built(scenario);
    ASSERT_EQ(errors.size(), built[key] ? 0u : 1u);
    if (built[key]) continue;
    EXPECT_EQ(errors[0].what, "not built yet: " + key);
  }
}

}  // namespace
}  // namespace lockstep
