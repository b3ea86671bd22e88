#include "harness/offload_bytes.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace lockstep {
namespace {

std::string layers_of(OffloadModule module) {
  switch (module) {
    case OffloadModule::mlp_norm:
      return "-E";
    case OffloadModule::mlp_fc1:
      return "-";
    case OffloadModule::expert_fc1:
    case OffloadModule::moe_act:
      return "E";
    case OffloadModule::mamba_in_proj:
    case OffloadModule::mamba_scan:
      return "M";
    default:
      return "*";
  }
}

// Bytes of a row of each tensor that a module saves; `word` is the storage type's size.
std::vector<std::int64_t> row_bytes(const Scenario::Model& m, OffloadModule module, std::int64_t word) {
  const Scenario::Model::Attention& a = m.attention;
  const std::int64_t inner = m.mamba.d_inner, conv = inner + 2 * m.mamba.groups * m.mamba.state;
  switch (module) {
    case OffloadModule::core_attn:
      return {(a.heads + 2 * a.kv_heads) * a.head_dim * word, a.heads * 4};
    case OffloadModule::attn_proj:
      return {a.heads * a.head_dim * word};
    case OffloadModule::mamba_scan:
      return {(inner + conv + inner / m.mamba.head_dim) * word, conv * word, inner * word};
    default:
      return {m.hidden * word};  // The input of a norm, or of the product behind it.
  }
}

}  // namespace

std::optional<std::int64_t> offloaded_bytes(const Scenario& scenario) {
  const Scenario::Offload& offload = scenario.offload;
  const std::int64_t word = scenario.numerics.front() == Numerics::bf16 ? 2 : 4;
  std::vector<std::int64_t> groups;
  for (const char symbol : scenario.model.pattern) {
    for (const OffloadModule module : offload.modules) {
      if (layers_of(module) == "E") return {};
      if (layers_of(module).find(symbol) == std::string::npos) continue;
      std::int64_t sum = 0;
      for (const std::int64_t row : row_bytes(scenario.model, module, word)) {
        const std::int64_t bytes = row * scenario.data.pack_length;
        if (bytes >= offload.min_bytes) sum += bytes;
      }
      if (sum > 0) groups.push_back(sum);
    }
  }
  // ceil(n * fraction) of n go, the first ones.
  const auto n = static_cast<std::int64_t>(groups.size());
  const std::int64_t go = (n * offload.fraction.millionths + 999'999) / 1'000'000;
  return std::accumulate(groups.begin(), groups.begin() + go, std::int64_t{0});
}

}  // namespace lockstep
