// The cases that `verify` is asked to run: files become cases, one per precision, some of them
// decided without a run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/case/run_options.h"
#include "harness/case/verdict.h"
#include "scenarios/io/reader.h"

namespace lockstep {

struct PlannedCase {
  std::string file;
  Scenario scenario;  // One precision.
  // Refused as expected, skipped, or not for this machine: nothing is run.
  std::optional<CaseResult> decided;
  bool named = true;  // Asked for by its name, not found in a folder.
};

// The cases of one file. What is not built is skipped; a file of which nothing is built is a
// request that cannot be met, unless `from_library`. Refusals that nobody expected go into
// `errors`.
std::vector<PlannedCase> plan_file(const std::string& path, bool from_library,
                                   std::vector<ScenarioError>& errors);

// The cases that a word stands for: a file's precisions without those decided already, which are
// told on stderr, or the one case of a token, which may be of a build that had other rules or
// features; `folder` is where its data lie. RequestError where that is nothing, or not legal and
// built here; TokenError for a token that cannot be read.
std::vector<Scenario> cases_of(const std::string& word, const std::string& folder);

// A case that this machine cannot run is skipped if it was found, and broken by `device` if it was
// named.
void decide_what_is_lacking(PlannedCase& one, const std::string& device);

// Gives up a case that needs more memory than this machine has.
void give_up_for_memory(PlannedCase& one, const std::string& device);

// The verdict after `expect` had its say: violated as expected holds, holding against expectation
// is violated.
CaseResult judged_by_expectation(const Scenario& scenario, CaseResult result);

}  // namespace lockstep
