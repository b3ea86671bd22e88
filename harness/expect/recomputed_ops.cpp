#include "harness/expect/recomputed_ops.h"

#include "kernels/core/at.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/rules/legality.h"

namespace lockstep {

std::vector<std::string> recomputed_ops(const Scenario& scenario, char symbol) {
  using Ops = std::vector<std::string>;
  const auto asked = [&](Recompute module) { return holds(scenario.model.recompute, module); };
  const bool by_cudnn = scenario.model.core_attention == CoreAttention::cudnn;
  const Ops product =
      multiplies_fp8(scenario) ? Ops{"fp8_cast", "fp8_linear_forward"} : Ops{"linear_forward"};
  Ops ops;
  const auto add = [&](const Ops& more) { ops.insert(ops.end(), more.begin(), more.end()); };
  if (asked(Recompute::layernorm)) add({"rms_norm_forward"});
  switch (symbol) {
    case '*':
      if (asked(Recompute::core_attn))
        add({by_cudnn ? "cudnn_attention_forward" : "attention_forward"});
      break;
    case '-':
      if (asked(Recompute::mlp)) add(product);
      if (asked(Recompute::mlp) || asked(Recompute::mlp_act)) add({"activation_forward"});
      break;
    case 'M':
      if (asked(Recompute::mamba)) add(product);
      if (asked(Recompute::mamba)) add({"conv_forward", "scan_forward", "gated_norm_forward"});
      break;
    default:
      if (asked(Recompute::moe)) add({"router_forward", "dispatch"});
      for (int times = 0; asked(Recompute::moe) && expert_ranks(scenario) > 1 && times < 4; ++times)
        add({"move_rows"});  // Before and behind each of two exchanges.
      for (const bool shared : {false, true}) {
        if (shared && scenario.model.moe.shared_hidden == 0) continue;
        const Ops expert = multiplies_fp8(scenario) ? product : Ops{"expert_forward"};
        if (asked(Recompute::moe) && shared) add(product);
        for (int times = 0; asked(Recompute::moe) && !shared && times < 2; ++times) add(expert);
        if (asked(Recompute::moe) || asked(Recompute::moe_act)) add({"activation_forward"});
      }
  }
  return ops;
}

std::int64_t recomputed_ops(const Scenario& scenario) {
  std::int64_t ops = 0;
  for (const char symbol : scenario.model.pattern)
    ops += std::ssize(recomputed_ops(scenario, symbol));
  return ops;
}

std::string recomputed_otherwise(const Scenario& scenario, std::int64_t ranks,
                                 const RecomputedOps& seen) {
  std::int64_t passes = 0;
  for (std::int64_t step = 0; step < scenario.training.steps; ++step)
    passes += scenario.training.microbatches_at(step) * ranks;
  RecomputedOps differ = seen;  // How often too many.
  for (int layer = 0; layer < static_cast<int>(scenario.model.pattern.size()); ++layer) {
    for (const std::string& op : recomputed_ops(scenario, at(scenario.model.pattern, layer)))
      differ[{layer, op}] -= passes;
  }
  for (const auto& [place, more] : differ) {
    if (more == 0) continue;
    const auto found = seen.find(place);
    const std::int64_t count = found == seen.end() ? 0 : found->second;
    return place.second + " of layer " + std::to_string(place.first) + " ran again " +
           std::to_string(count) + " times, not " + std::to_string(count - more);
  }
  return "";
}

}  // namespace lockstep
