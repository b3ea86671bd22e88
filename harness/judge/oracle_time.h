// How long the oracle will take on this machine: the work of a scenario, counted from it alone, and
// the rate, measured on two small models.
#pragma once

#include "scenarios/scenario.h"

namespace lockstep {

struct OracleWork {
  double multiply_adds = 0;  // In products and attention, in all steps.
  double elements = 0;       // Activations stored in all microbatches, and weights updated.
};
OracleWork oracle_work(const Scenario& scenario);

// Seconds of one core for one unit of each, in one precision.
struct OracleRate {
  double per_multiply_add = 0, per_element = 0;
  double seconds(const OracleWork& work) const {
    return work.multiply_adds * per_multiply_add + work.elements * per_element;
  }
};
// Runs the oracle for some hundredths of a second on models with the layers of this one.
OracleRate measure_oracle(const Scenario& scenario, Numerics numerics);
// The rate at which both models take the times that were measured; no part of it is negative.
OracleRate rate_of(const OracleWork& small, double small_seconds, const OracleWork& wide,
                   double wide_seconds);

}  // namespace lockstep
