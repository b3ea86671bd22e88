// A scenario as far as an engine honours it (docs/engine-protocol.md, section 12).
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep::foreign {

struct ProjectedKey {
  std::string key, from, to;  // Values as in a scenario file.
  friend bool operator==(const ProjectedKey&, const ProjectedKey&) = default;
};

struct Projection {
  // Nothing where no legal scenario of the engine is near.
  std::optional<Scenario> scenario;
  std::vector<ProjectedKey> changes;
  std::string why_not;  // Where there is none.
};

// `scenario` has one precision. `checker` and `expect` get their defaults, which is no change to
// be told: lockstep can watch neither streams nor counters of its own in another engine. The
// projection of a projection is itself.
Projection project(const Scenario& scenario, const boost::json::object& honours);

// The values of keys that an engine does not honour: what is off is off, and the rest is default.
const Scenario& neutral_scenario();

}  // namespace lockstep::foreign
