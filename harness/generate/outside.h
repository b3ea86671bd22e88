// What a campaign is asked to reach beyond one process and lockstep's own kernels (`fuzz --with`).
// Without being asked, the generator draws none of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/generate/traits.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct Outside {
  bool processes = false;  // Ranks are processes that exchange through shared memory.
  bool nccl = false;       // They exchange through NCCL, and take a GPU each.
  bool cudnn = false;      // Attention is cuDNN's.
  bool fp8 = false;        // More cases are in fp8: a third.

  bool any() const { return processes || nccl || cudnn || fp8; }
  bool transports() const { return processes || nccl; }
  friend bool operator==(const Outside&, const Outside&) = default;
};

// One that may be asked for: its name, and the trait of scenarios that have it.
struct OutsideName {
  const char* name;
  bool Outside::*asked;
  Trait trait;
};
const std::vector<OutsideName>& outside_names();
// "processes,cudnn": those that are asked for; "" for none.
std::string to_text(const Outside& outside);
// Throws RequestError for a name that is none of them.
Outside outside_of(const std::string& list);
// A scenario that has what is asked for, and needs the least for that.
Scenario smallest_with(const Outside& outside);

}  // namespace lockstep
