// The table of modules that may be offloaded, from which validation, plan, generator and
// documentation are derived.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// The kind of activation that a module keeps for its backward pass, as far as it decides whether it
// may leave.
enum class Kept : std::uint8_t {
  residual,     // The residual stream that its layer reads: input or output of a graph that ends
                // there.
  norm_output,  // Never crosses a region's boundary; not saved where norms are computed again.
  inside,       // Made and read inside of its layer.
  experts,      // The same, of the experts: rows may follow the data, and copies may be delayed.
};

struct OffloadModuleRow {
  OffloadModule module;
  const char* layers;  // Symbols of the pattern that have it.
  Kept kept;
};

// In order of execution within a layer, which is the order of the enumeration.
inline constexpr std::array kOffloadModules{
    OffloadModuleRow{OffloadModule::attn_norm, "*", Kept::residual},
    OffloadModuleRow{OffloadModule::qkv_linear, "*", Kept::norm_output},
    OffloadModuleRow{OffloadModule::core_attn, "*", Kept::inside},
    OffloadModuleRow{OffloadModule::attn_proj, "*", Kept::inside},  // Not without core_attn: L25.
    OffloadModuleRow{OffloadModule::mlp_norm, "-E", Kept::residual},
    OffloadModuleRow{OffloadModule::mlp_fc1, "-", Kept::norm_output},
    OffloadModuleRow{OffloadModule::expert_fc1, "E", Kept::experts},
    OffloadModuleRow{OffloadModule::moe_act, "E", Kept::experts},
    OffloadModuleRow{OffloadModule::mamba_in_proj, "M", Kept::norm_output},
    OffloadModuleRow{OffloadModule::mamba_scan, "M", Kept::inside},
};

constexpr const OffloadModuleRow& offload_row(OffloadModule module) {
  return kOffloadModules[static_cast<std::size_t>(module)];
}
// Whether a layer of that symbol has the module.
constexpr bool has_module(char symbol, OffloadModule module) {
  for (const char* layer = offload_row(module).layers; *layer != '\0'; ++layer) {
    if (*layer == symbol) return true;
  }
  return false;
}

// Modules that have a layer in the pattern and keep nothing that crosses the boundary of a graph
// (L24, L26).
std::vector<OffloadModule> offloadable_modules(const Scenario& scenario);

// Whether some group of offload.modules goes whose layer lies in a partial graph, so that its
// copies can be nodes there; sizes are not looked at (L30).
bool captures_copies(const Scenario& scenario);

// The host knows how many rows of the experts' buffers are in use, so that a copy moves no more
// than those.
inline bool rows_follow_the_data(const Scenario& scenario, OffloadModule module) {
  return scenario.model.moe.host_sync && offload_row(module).kept == Kept::experts;
}

}  // namespace lockstep
