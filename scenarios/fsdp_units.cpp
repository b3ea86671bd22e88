#include "scenarios/fsdp_units.h"

#include <algorithm>

#include "scenarios/pass_order.h"

namespace lockstep {

std::vector<std::int64_t> blocks_of_units(const Scenario& scenario) {
  const Scenario::Fsdp& fsdp = scenario.fsdp;
  if (fsdp.unit_is_list) return fsdp.unit;
  const Scenario::Parallel& parallel = scenario.parallel;
  std::vector<std::int64_t> units;
  for (std::int64_t left :
       blocks_of_pieces(std::ssize(scenario.blocks()), parallel.pipeline * parallel.chunks)) {
    for (; left > 0; left -= units.back()) units.push_back(std::min(left, fsdp.unit.front()));
  }
  return units;
}

}  // namespace lockstep
