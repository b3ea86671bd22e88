// Bytes that a run takes or exchanges, counted without running it.
#pragma once

#include <cstdint>

#include "scenarios/scenario.h"

namespace lockstep {

// Device memory that is allocated when training begins: weights, optimizer, gradients and the slots
// of all microbatches in flight. Steps allocate more only for packs that fit no capacity. One rank.
// No op runs and no memory is touched, so that any model fits.
std::int64_t device_bytes(const Scenario& scenario);

// Bytes of all weights as the ranks of `scenario` gather them for one pass; 0 where they do not.
std::int64_t gathered_bytes(const Scenario& scenario);

}  // namespace lockstep
