#include "engine/regions.h"

#include <algorithm>

namespace lockstep {
namespace {

bool is_captured(const Scenario::CudaGraph& graph, char symbol) {
  if (graph.impl != GraphImpl::partial) return false;
  if (graph.modules.empty()) return true;
  const GraphModule module = symbol == 'M' ? GraphModule::mamba : symbol == '*' ? GraphModule::attn : GraphModule::mlp;
  return std::find(graph.modules.begin(), graph.modules.end(), module) != graph.modules.end();
}

}  // namespace

std::vector<Segment> segments(const Scenario& scenario) {
  std::vector<Segment> list;
  int regions = 0;
  for (const Scenario::Block& block : scenario.blocks()) {
    bool in_region = false;
    for (int layer = block.first; layer < block.first + block.count; ++layer) {
      const bool captured = is_captured(scenario.cuda_graph, scenario.model.pattern[static_cast<std::size_t>(layer)]);
      if (captured && in_region) {
        list.back().layers.push_back(layer);
      } else {
        list.push_back({{layer}, captured ? regions++ : -1});
      }
      in_region = captured;
    }
  }
  return list;
}

}  // namespace lockstep
