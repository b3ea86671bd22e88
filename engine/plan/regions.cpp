#include "engine/plan/regions.h"

#include <algorithm>

#include "kernels/core/at.h"
#include "kernels/core/require.h"

namespace lockstep {
namespace {

bool has_module(const Scenario::CudaGraph& graph, GraphModule module) {
  return std::find(graph.modules.begin(), graph.modules.end(), module) != graph.modules.end();
}

// The stages before this one are captured.
Stage captured_until(const Scenario::CudaGraph& graph, char symbol) {
  const auto all_if = [&](GraphModule module) {
    return has_module(graph, module) ? Stage::end : Stage::router;
  };
  if (graph.impl != GraphImpl::partial) return Stage::router;
  if (graph.modules.empty()) return Stage::end;
  switch (symbol) {
    case 'M':
      return all_if(GraphModule::mamba);
    case '*':
      return all_if(GraphModule::attn);
    case 'E':
      if (has_module(graph, GraphModule::moe_preprocess)) return Stage::experts;
      if (has_module(graph, GraphModule::moe_router)) return Stage::preprocess;
      return all_if(GraphModule::moe);
    case '-':
      return all_if(GraphModule::mlp);
  }
  require(false, "every symbol of a pattern has a graph module");
  return Stage::end;
}

}  // namespace

std::vector<Segment> segments(const Scenario& scenario) {
  std::vector<Segment> list;
  int regions = 0;
  for (const Scenario::Block& block : scenario.blocks()) {
    bool in_region = false;
    for (int layer = block.first; layer < block.first + block.count; ++layer) {
      const Stage cut = captured_until(scenario.cuda_graph, at(scenario.model.pattern, layer));
      if (cut > Stage::router) {
        if (!in_region) list.push_back({{}, regions++});
        list.back().parts.push_back({layer, Stage::router, cut});
      }
      in_region = cut == Stage::end;
      if (!in_region) list.push_back({{{layer, cut, Stage::end}}, -1});
    }
  }
  return list;
}

}  // namespace lockstep
