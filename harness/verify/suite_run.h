// Runs the cases of `verify` on workers that live for many cases: on a GPU the start of a process
// takes longer than most cases.
//
// A worker in which a case failed, or that died, judges nothing else, and a case that failed behind
// others is run again alone, in a process of its own: what an earlier case left behind is neither
// blamed on this one nor taken for its result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/case/run_options.h"
#include "harness/run/suite.h"
#include "harness/run/worker.h"
#include "harness/verify/suite_worker.h"

namespace lockstep {

struct SuiteOptions {
  RunOptions run;
  int jobs = 1;            // Workers.
  double timeout_s = 300;  // For one case.
  bool fork = true;        // Off for debuggers: the cases run in this process, one by one.
  bool fail_fast = false;  // Begin no case after one that failed.
  CaseJudge judge = run_with_fault;
};

// A case that runs now.
struct CaseUnderWay {
  std::size_t number;  // In the list of cases.
  std::string phase;   // What it does, as RunOptions::progress tells.
  double seconds;
};

// Called in this process.
struct SuiteEvents {
  std::function<void(std::size_t number, CaseResult result)> finished;
  std::function<void(const std::vector<CaseUnderWay>&)> waited;  // Several times a second.
};

// The number of workers where the user gives none: one a GPU, or one a core for the simulated
// device.
int default_jobs(const std::string& device);

// How it ended.
enum class SuiteEnd : std::uint8_t { complete, after_a_failure, interrupted };
SuiteEnd run_suite(const std::vector<PlannedCase>& cases, const SuiteOptions& options,
                   const SuiteEvents& events);

}  // namespace lockstep
