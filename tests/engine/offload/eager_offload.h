// A scenario without graphs that offloads modules.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

inline Scenario scenario_of(const std::string& pattern, std::vector<OffloadModule> modules) {
  Scenario s;
  s.model.pattern = pattern;
  s.cuda_graph.impl = GraphImpl::none;
  s.offload.modules = std::move(modules);
  return s;
}

}  // namespace lockstep
