// Results of a command on an engine that lockstep did not write, for people and for CI.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "harness/base/errors.h"
#include "harness/foreign/engine_result.h"
#include "harness/foreign/expected_failures.h"
#include "harness/foreign/hello.h"

namespace lockstep::foreign {

struct EngineReport {
  Hello hello = {};
  std::vector<EngineResult> results = {};
  ExpectedFailures expected = {};
  bool interrupted = false;
  double seconds = 0;

  std::vector<CaseResult> cases() const;
};

// A line for each case, what was projected, what each relation was applied to, and totals.
std::string table(const EngineReport& report);
// One case in full: what was projected, and the outcome of each relation.
std::string case_text(const EngineResult& result);
// What the engine says of itself.
std::string hello_text(const Hello& hello);
boost::json::object to_json(const EngineReport& report);
// One result, and back, for logs of campaigns.
boost::json::object to_json(const EngineResult& result);
EngineResult result_from_json(const boost::json::object& object);
// For each relation to how many cases it applied, and why not to the others.
std::string relations_text(const std::vector<EngineResult>& results);
// Expected failures that hold are violated.
ExitStatus status_of(const EngineReport& report);

}  // namespace lockstep::foreign
