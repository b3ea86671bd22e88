#include "harness/report/offload_matrix.h"

#include <sstream>
#include <vector>

#include "scenarios/io/reader.h"
#include "scenarios/rules/legality.h"
#include "scenarios/rules/offload_modules.h"

namespace lockstep {
namespace {

struct Graphs {
  const char* name;
  GraphImpl impl;
  std::vector<GraphModule> modules;
};
const std::vector<Graphs>& columns() {
  using enum GraphModule;
  using enum GraphImpl;
  static const std::vector<Graphs> all{
      {"eager", none, {}},
      {"whole layers", partial, {}},
      {"attn", partial, {attn}},
      {"mlp", partial, {mlp}},
      {"attn, mlp", partial, {attn, mlp}},
      {"moe", partial, {moe}},
      {"attn, moe", partial, {attn, moe}},
      {"moe_router", partial, {moe_router}},
      {"attn, moe_router", partial, {attn, moe_router}},
      {"attn, moe_router, moe_preprocess", partial, {attn, moe_router, moe_preprocess}},
      {"mamba", partial, {mamba}},
      {"full_iteration", full_iteration, {}},
  };
  return all;
}

struct Experts {
  const char* name;
  bool padded, host_sync;
};
constexpr Experts kNoExperts{"", true, false};
constexpr Experts kExperts[] = {{" drop-and-pad", true, false},
                                {" dropless", false, false},
                                {" dropless, host_sync", false, true}};

const char* pattern_of(char layer) {
  switch (layer) {
    case 'M':
      return "M*";
    case 'E':
      return "*E";
    default:
      return "*-";
  }
}

Scenario without_offload(char layer, const Experts& experts, const Graphs& graphs) {
  Scenario s;
  s.model.pattern = pattern_of(layer);
  if (!experts.padded) {
    s.model.moe.capacity_factor.reset();
    s.model.moe.pad_to_capacity = false;
  }
  s.model.moe.host_sync = experts.host_sync;
  s.cuda_graph.impl = graphs.impl;
  s.cuda_graph.modules = graphs.modules;
  return s;
}

std::string cell(Scenario s, OffloadModule module) {
  if (const auto errors = check_legality(s); !errors.empty()) {
    return errors.front().rule == "L16" ? "" : errors.front().rule;
  }
  s.offload.modules = {module};
  if (module == OffloadModule::attn_proj) s.offload.modules = {OffloadModule::core_attn, module};
  if (s.cuda_graph.impl == GraphImpl::full_iteration) s.offload.max_inflight = 1;
  if (const auto errors = check_legality(s); !errors.empty()) return errors.front().rule;
  s.offload.delay_until_cuda_graph = true;
  return check_legality(s).empty() ? "late" : "yes";
}

void write_row(std::ostringstream& out, char layer, const Experts& experts, OffloadModule module) {
  out << "| `" << word(module) << "` | `" << pattern_of(layer) << "`" << experts.name << " |";
  for (const Graphs& graphs : columns())
    out << " " << cell(without_offload(layer, experts, graphs), module) << " |";
  out << "\n";
}

}  // namespace

std::string offload_matrix() {
  std::ostringstream out;
  out << "| module | layers |";
  for (const Graphs& graphs : columns()) out << " " << graphs.name << " |";
  out << "\n|---|---|";
  for (std::size_t i = 0; i < columns().size(); ++i) out << "---|";
  out << "\n";
  for (const OffloadModuleRow& row : kOffloadModules) {
    for (const char* layer = row.layers; *layer != '\0'; ++layer) {
      if (*layer != 'E') write_row(out, *layer, kNoExperts, row.module);
      for (const Experts& experts : kExperts) {
        if (*layer == 'E') write_row(out, *layer, experts, row.module);
      }
    }
  }
  return out.str();
}

}  // namespace lockstep
