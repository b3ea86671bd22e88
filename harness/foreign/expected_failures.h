// Failures of an engine that are known, from a file beside it (docs/engine-protocol.md, section
// 14).
#pragma once

#include <boost/json.hpp>
#include <map>
#include <string>
#include <vector>

#include "harness/foreign/engine_result.h"
#include "harness/foreign/hello.h"

namespace lockstep::foreign {

struct ExpectedFailure {
  std::string relation;  // Its id.
  std::string issue;
  boost::json::object when;                   // Key -> what its value must match.
  std::map<std::string, std::string> engine;  // Text of hello.engine -> pattern.
  std::string tensors = "*";                  // Pattern of the first differing tensor.
  bool always = false;                        // Every matching case must fail.
  int line = 0;
  // What became of it in this command.
  std::int64_t applied = 0, failed = 0;
};

class ExpectedFailures {
 public:
  ExpectedFailures() = default;
  // Throws RequestError for a file that cannot be read or is not as section 14 says.
  explicit ExpectedFailures(const std::string& path);

  // Marks outcomes that an entry expects, and counts; settle() is due after it.
  void take(EngineResult& result, const Hello& hello);
  // Whether an entry expects this outcome.
  bool expects(const Scenario& scenario, const RelationOutcome& one, const Hello& hello) const;
  // Entries that no matching case failed, or `always` and not every one: each is an error.
  std::vector<std::string> unmet() const;
  // Entries that no case matched.
  std::vector<std::string> unused() const;

 private:
  std::string text(const ExpectedFailure& one) const;

  std::string path_;
  std::vector<ExpectedFailure> list_;
};

}  // namespace lockstep::foreign
