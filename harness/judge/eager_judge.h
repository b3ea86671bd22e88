// A judge for results whose bits are not modelled: a plain run of the engine itself on a device of
// its own, eager, on one rank, with nothing offloaded, recomputed or sharded. It cannot tell
// whether the numbers are right.
#pragma once

#include "harness/judge/judge.h"
#include "scenarios/documents/documents.h"

namespace lockstep {

// True for `core_attention: cudnn` on a GPU. The simulated device has the contract's bits there
// too.
bool is_judged_by_an_eager_run(const Scenario& scenario, const std::string& device);

// `data` outlives the judge. Faults planted in the judged engine are not planted in this one. As a
// microbatch's gradient it gives what a parameter holds after the backward pass: where that is an
// accumulator, the sum so far.
std::unique_ptr<Judge> make_eager_judge(const Scenario& scenario, const DataSource& data,
                                        const std::string& device, int gpu);

}  // namespace lockstep
