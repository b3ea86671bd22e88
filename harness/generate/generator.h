// Random scenarios, legal by construction: model, documents, schedule and the machinery switched
// on.
#pragma once

#include "harness/generate/choices.h"
#include "harness/generate/outside.h"
#include "harness/generate/rare.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Swarm style: each case switches a random subset of features on, so that rare combinations meet.
// Documents are drawn as containers (another one? how long?), never a count first, so that a
// shrinker can take one out. Lengths lean to the edges: 1, 2, conv width +-1, chunk +-1, what is
// left of the pack. Small: tens of milliseconds on one core.
// `rare`: a case about that size. `outside`: what is asked for of that. Each scenario then has one
// of the transports that are asked for, and every other one cuDNN's attention.
Scenario generate_scenario(Choices& choices, RareSize rare = RareSize::none,
                           const Outside& outside = {});

}  // namespace lockstep
