// The generator part by part, for who holds values of a scenario against what is drawn.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "harness/generate/choices.h"
#include "harness/generate/outside.h"
#include "harness/generate/parts.h"
#include "scenarios/scenario.h"

namespace lockstep {

// In this order. Each is drawn for what the ones before it have made.
enum class Part : std::uint8_t {
  model,
  training,
  data,
  graphs,
  offload,
  sharding,
  pressure,
  resumes
};

// Whether a run of a legal scenario meets what its keys of graphs, recaptures and evaluations ask
// for, as far as its documents decide that; a run that does not is vacuous. The second one looks at
// offloading too.
bool captures_what_it_asks(const Scenario& scenario);
bool does_what_it_asks(const Scenario& scenario);

// A stage may capture or offload nothing, and then a delay of its rank would delay nothing: such
// delays become those of any rank.
void free_ranks_of_delays(Scenario& scenario);

// `hold` is called behind each part and may change the scenario; where it returns false, the draw
// ends without one.
using Hold = std::function<bool(Part, Scenario&)>;
std::optional<Scenario> generate_held(Choices& choices, Swarm swarm, const Outside& outside,
                                      const Hold& hold);

}  // namespace lockstep
