// The host scalars of AdamW that change from step to step (arithmetic.md 2.13).
#pragma once

#include "scenarios/scenario.h"

namespace lockstep {

// `t` counts optimizer steps from 1.
float learning_rate(const Scenario::Training::Optimizer& optimizer, std::int64_t t);

// ib = (float)(1 / (1 - beta^t)), the power by t multiplications in double.
float bias_correction(double beta, std::int64_t t);

}  // namespace lockstep
