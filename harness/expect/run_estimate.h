// Lower bounds of what a run takes, from its scenario alone.
#pragma once

#include "scenarios/scenario.h"

namespace lockstep {

// A run takes at least this: what it holds at once, without what a device, a checker or a library
// adds. A run that is refused for it could not have ended. The numbers are floating point, because
// a legal scenario may ask for more than 64 bits can count.
struct RunEstimate {
  double state = 0;          // Bytes of weights, gradients and moments of one rank.
  double activations = 0;    // Bytes that one rank stores for the microbatches in flight.
  double documents = 0;      // Bytes of a step's tokens and targets, of all ranks.
  double multiply_adds = 0;  // In all steps, of the engine alone.

  // For the engine on `ranks` ranks of this machine.
  double engine(double ranks) const { return ranks * (state + activations) + documents; }
  // For the reference, which is one rank and looks at one microbatch at a time.
  double reference = 0;
};
RunEstimate estimate_run(const Scenario& scenario);
// Microbatches of one rank in all steps.
double microbatches_of_a_rank(const Scenario& scenario);

}  // namespace lockstep
