#include "harness/expect/offload_bytes.h"

#include <algorithm>
#include <vector>

#include "engine/offload/plan.h"
#include "harness/expect/expectations.h"
#include "kernels/core/at.h"
#include "oracle/ops/dispatch.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/fp8.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"
#include "scenarios/rules/offload_modules.h"

namespace lockstep {
namespace {

// Rows of the buffer for the experts of a rank: padded, every expert has its capacity for each
// source; else there is room for each pair that a source can keep with these experts.
std::int64_t expert_rows(const Scenario& scenario) {
  const Scenario::Model::Moe& moe = scenario.model.moe;
  const std::int64_t sources = expert_ranks(scenario), own = moe.experts / sources;
  const std::int64_t pairs = scenario.data.pack_length * moe.top_k;
  const auto capacity = oracle::expert_capacity(moe, scenario.data.pack_length, {});
  if (!capacity) return sources * pairs;
  const std::int64_t full = *capacity * own;
  return sources * (moe.pad_to_capacity ? full : std::min(pairs, full));
}

// Bytes of an element of a layer's input: of its codes, if it saves those.
std::int64_t input_bytes(const Scenario& scenario, std::optional<Fp8Layer> layer,
                         std::int64_t word) {
  return layer && saves_codes(scenario, *layer) ? 1 : word;
}

std::optional<Fp8Layer> layer_of_fp8(OffloadModule module) {
  if (module == OffloadModule::qkv_linear) return Fp8Layer::qkv_linear;
  if (module == OffloadModule::mlp_fc1) return Fp8Layer::mlp_fc1;
  if (module == OffloadModule::mamba_in_proj) return Fp8Layer::mamba_in_proj;
  if (module == OffloadModule::expert_fc1) return Fp8Layer::expert_fc1;
  return {};
}

// Bytes of a row of each tensor that a module saves; `word` is the storage type's size.
std::vector<std::int64_t> row_bytes(const Scenario& scenario, OffloadModule module,
                                    std::int64_t word) {
  const Scenario::Model& m = scenario.model;
  const Scenario::Model::Attention& a = m.attention;
  const std::int64_t mixed = a.heads * a.head_dim;
  const std::int64_t inner = m.mamba.d_inner, conv = inner + 2 * m.mamba.groups * m.mamba.state;
  switch (module) {
    case OffloadModule::core_attn:
      if (std::ranges::find(m.recompute, Recompute::core_attn) != m.recompute.end())
        return {(a.heads + 2 * a.kv_heads) * a.head_dim * word};  // The sums are not saved.
      // The projection's codes are not what attention's backward pass reads.
      if (saves_codes(scenario, Fp8Layer::attn_proj))
        return {(a.heads + 2 * a.kv_heads) * a.head_dim * word, a.heads * 4, mixed * word};
      return {(a.heads + 2 * a.kv_heads) * a.head_dim * word, a.heads * 4};
    case OffloadModule::attn_proj:
      return {mixed * input_bytes(scenario, Fp8Layer::attn_proj, word)};
    case OffloadModule::mamba_scan:
      return {(inner + conv + inner / m.mamba.head_dim) * word, conv * word, inner * word};
    case OffloadModule::moe_act:
      return {m.moe.hidden * (m.mlp.activation == MlpActivation::swiglu ? 2 : 1) * word};
    default:
      // The input of a norm, or of the product behind it.
      return {m.hidden * input_bytes(scenario, layer_of_fp8(module), word)};
  }
}

bool of_experts(OffloadModule module) {
  return module == OffloadModule::expert_fc1 || module == OffloadModule::moe_act;
}

// Codes of the experts' input lie transposed, each expert's beginning at a multiple of 16.
bool has_columns(const Scenario& scenario, OffloadModule module) {
  return module == OffloadModule::expert_fc1 && saves_codes(scenario, Fp8Layer::expert_fc1);
}

std::int64_t rows_of(const Scenario& scenario, OffloadModule module) {
  if (!of_experts(module)) return scenario.data.pack_length;
  const std::int64_t rows = expert_rows(scenario);
  return has_columns(scenario, module) ? columns_of_codes(rows, scenario.model.moe.experts) : rows;
}

// A piece is a chunk of some stage.
std::int64_t piece_of(const Scenario& scenario, int layer) {
  const std::vector<Scenario::Block> blocks = scenario.blocks();
  std::int64_t piece = 0, end = 0;
  for (const std::int64_t count : blocks_of_pieces(std::ssize(blocks), pieces_of(scenario))) {
    end += count;
    if (layer < at(blocks, end - 1).first + at(blocks, end - 1).count) break;
    ++piece;
  }
  return piece;
}

struct Group {
  OffloadModule module;
  int layer;
  std::int64_t piece;
  std::int64_t bytes, row;  // Over all its tensors.
  bool of_experts, follows_the_data, has_columns;
  std::vector<std::int64_t> sizes;
};

std::vector<Group> groups_of(const Scenario& scenario) {
  const std::int64_t word = stores_bf16(scenario) ? 2 : 4;
  std::vector<Group> groups;
  for (int layer = 0; layer < static_cast<int>(scenario.model.pattern.size()); ++layer) {
    for (const OffloadModule module : scenario.offload.modules) {
      if (!has_module(at(scenario.model.pattern, layer), module)) continue;
      const bool experts = of_experts(module);
      const std::int64_t rows = rows_of(scenario, module);
      Group group{module,
                  layer,
                  piece_of(scenario, layer),
                  0,
                  0,
                  experts,
                  experts && scenario.model.moe.host_sync,
                  has_columns(scenario, module),
                  {}};
      for (const std::int64_t row : row_bytes(scenario, module, word)) {
        if (row * rows < scenario.offload.min_bytes) continue;
        group.bytes += row * rows;
        group.row += row;
        group.sizes.push_back(row * rows);
      }
      if (group.bytes > 0) groups.push_back(group);
    }
  }
  return groups;
}

// ceil(n * fraction) of n groups go, the first ones.
std::int64_t going(const Scenario& scenario, std::int64_t groups) {
  return (groups * scenario.offload.fraction.millionths + 999'999) / 1'000'000;
}

// The most bytes that a tensor of the module has in any layer.
std::int64_t largest_tensor(const Scenario& scenario, OffloadModule module) {
  const std::int64_t word = stores_bf16(scenario) ? 2 : 4;
  const std::vector<std::int64_t> rows = row_bytes(scenario, module, word);
  return *std::ranges::max_element(rows) * rows_of(scenario, module);
}

// Layers that lie in a graph as a whole; of `E`, the router may be captured without the experts.
std::vector<bool> captured_layers(const Scenario& scenario) {
  std::vector<bool> whole(scenario.model.pattern.size());
  const std::vector<GraphModule>& modules = scenario.cuda_graph.modules;
  for (const Scenario::Block& block : scenario.blocks()) {
    for (const int layer : captured_symbols(scenario, block)) {
      whole[layer] = modules.empty() || scenario.model.pattern[layer] != 'E' ||
                     holds(modules, GraphModule::moe);
    }
  }
  return whole;
}

// The key for which a group stays, or that it goes.
enum class Stays : std::uint8_t { no, delta, fraction };

// A stage keeps groups of its last piece first, until there are stage * delta_bytes; then the last
// ones of what is left.
std::vector<Stays> stays(const Scenario& scenario, const std::vector<Group>& groups) {
  const std::int64_t stages = scenario.parallel.pipeline;
  std::vector<Stays> list(groups.size(), Stays::no);
  std::vector<std::int64_t> wanted(stages), left(stages), gone(stages);
  for (std::int64_t stage = 0; stage < stages; ++stage)
    at(wanted, stage) = stage * scenario.offload.delta_bytes;
  for (std::int64_t piece = pieces_of(scenario) - 1; piece >= 0; --piece) {
    std::int64_t& want = at(wanted, piece % stages);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (groups[i].piece != piece) continue;
      if (want > 0) list[i] = Stays::delta;
      at(left, piece % stages) += want <= 0;
      want -= groups[i].bytes;
    }
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::int64_t stage = groups[i].piece % stages;
    if (list[i] == Stays::no && at(gone, stage)++ >= going(scenario, at(left, stage)))
      list[i] = Stays::fraction;
  }
  return list;
}

std::vector<Group> going_groups(const Scenario& scenario) {
  const std::vector<Group> groups = groups_of(scenario);
  const std::vector<Stays> list = stays(scenario, groups);
  std::vector<Group> going_ones;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (list[i] == Stays::no) going_ones.push_back(groups[i]);
  }
  return going_ones;
}

// When copies back begin is the plan's to say.
void add_copies_back(const Scenario& scenario, OffloadDemand& demand) {
  for (int stage = 0; stage < scenario.parallel.pipeline; ++stage) {
    for (const OffloadPlan& plan : plan_offloads(scenario, stage)) {
      for (const OffloadGroup& group : plan.groups) {
        if (!group.returns_in_graph) continue;
        demand.copies_in_graphs += std::ssize(group.tensors);
        demand.bytes_in_graphs += group.bytes();
      }
    }
  }
}

}  // namespace

std::int64_t columns_of_codes(std::int64_t rows, std::int64_t experts) {
  return rows == 0 ? 0 : (rows + 15) / 16 * 16 + 16 * (experts - 1);
}

OffloadDemand offload_demand(const Scenario& scenario) {
  const std::vector<Group> groups = going_groups(scenario);
  OffloadDemand demand;
  const std::vector<bool> captured = captured_layers(scenario);
  for (const Group& group : groups) {
    if (scenario.offload.captured && at(captured, group.layer)) {
      demand.copies_in_graphs += std::ssize(group.sizes);
      demand.bytes_in_graphs += group.bytes;
    }
    demand.of_experts += group.of_experts;
    for (const std::int64_t size : group.sizes) demand.sizes.emplace(group.piece, size);
    if (group.follows_the_data) {
      (group.has_columns ? demand.per_column : demand.per_pair)[group.layer] += group.row;
    } else {
      demand.fixed += group.bytes;
    }
  }
  if (scenario.offload.captured) add_copies_back(scenario, demand);
  return demand;
}

bool keeps_for_delta(const Scenario& scenario) {
  const std::vector<Stays> list = stays(scenario, groups_of(scenario));
  return std::ranges::find(list, Stays::delta) != list.end();
}

// Why the groups of a module stay, all of them.
static std::string reason_to_stay(const std::vector<Group>& groups, const std::vector<Stays>& list,
                                  OffloadModule module) {
  const auto count = [&](Stays why) { return std::ranges::count(list, why); };
  const auto with = [&](Stays why) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (groups[i].module == module && list[i] == why) return true;
    }
    return false;
  };
  const std::int64_t n = std::ssize(groups), delta = count(Stays::delta);
  const std::string among = "on the device, and all of its groups are among them";
  if (!with(Stays::fraction))
    return "offload.delta_bytes keeps " + std::to_string(delta) + " of " + std::to_string(n) +
           " groups " + among;
  const std::string last = "offload.fraction keeps the last " +
                           std::to_string(count(Stays::fraction)) + " of " +
                           std::to_string(n - delta) + " groups ";
  if (!with(Stays::delta)) return last + among;
  return last + "and offload.delta_bytes " + std::to_string(delta) + " " + among;
}

std::vector<StayingModule> staying_modules(const Scenario& scenario) {
  const std::vector<Group> groups = groups_of(scenario);
  const std::vector<Stays> list = stays(scenario, groups);
  std::vector<StayingModule> found;
  for (const OffloadModule module : scenario.offload.modules) {
    bool exists = false, goes = false;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      exists |= groups[i].module == module;
      goes |= groups[i].module == module && list[i] == Stays::no;
    }
    if (goes) continue;
    found.push_back({module, exists ? reason_to_stay(groups, list, module)
                                    : "its largest tensor has " +
                                          std::to_string(largest_tensor(scenario, module)) +
                                          " bytes, fewer than offload.min_bytes " +
                                          std::to_string(scenario.offload.min_bytes)});
  }
  return found;
}

}  // namespace lockstep
