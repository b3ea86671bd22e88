// The commands on an engine that lockstep did not write, which --engine starts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "harness/base/errors.h"
#include "harness/base/interrupt_guard.h"
#include "harness/base/options.h"
#include "harness/generate/likeness.h"
#include "harness/run/suite.h"

namespace lockstep {

// --engine, --relation, --expect-failures.
void add_engine_options(Options& options);
// Whether --engine was given. Throws RequestError where options of lockstep's own engine stand
// beside it, or the other two without it.
bool asks_for_engine(const Options& options);

ExitStatus verify_on_engine(const Options& options, const std::vector<PlannedCase>& cases,
                            InterruptGuard& guard);
ExitStatus replay_on_engine(const Options& options, const std::vector<Scenario>& scenarios,
                            InterruptGuard& guard);
ExitStatus fuzz_on_engine(const Options& options, std::uint64_t seed,
                          std::shared_ptr<const Likeness> like);
// `scenarios`: of the file that was named, or none.
ExitStatus describe_engine(const Options& options, const std::vector<Scenario>& scenarios);

}  // namespace lockstep
