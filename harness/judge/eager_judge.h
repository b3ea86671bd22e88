// The judge of what has no modelled bits: the engine itself, on a device of its own, plain: eager,
// one rank, nothing offloaded, recomputed or sharded. It says nothing about whether the numbers are
// right.
#pragma once

#include "harness/judge/judge.h"
#include "scenarios/documents/documents.h"

namespace lockstep {

// `core_attention: cudnn` on a GPU. The simulated device has the contract's bits there too.
bool is_judged_by_an_eager_run(const Scenario& scenario, const std::string& device);

// `data` outlives the judge. What is planted in the engine is not planted in this one. A
// microbatch's gradients are what a parameter shows after the backward pass: where that is the
// accumulator, the sum so far.
std::unique_ptr<Judge> make_eager_judge(const Scenario& scenario, const DataSource& data,
                                        const std::string& device, int gpu);

}  // namespace lockstep
