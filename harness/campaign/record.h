// The record of a case: its result, its features, and for a failure the results of further runs.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/case/time_spent.h"
#include "harness/case/verdict.h"
#include "harness/generate/features.h"

namespace lockstep {

struct CaseRecord {
  std::int64_t index = -1;  // -1: of the corpus.
  std::string corpus_file;
  std::uint64_t seed = 0;  // For its choices.
  CaseResult result;
  std::string rule;  // For an invalid case; otherwise "".
  Traits traits;     // For a legal random case.

  // The class of a failure.
  std::string failure_class;
  std::string kind;          // deterministic, racy, oracle unstable, infrastructure, not run again.
  int failed = 0, runs = 0;  // For the further runs.
  std::string file;          // In the corpus, "" where none is kept.
};

// One further run of a failing case, in a fresh process.
struct FurtherRun {
  CaseResult result;
  std::string oracle;      // Digest of the oracle's own run, "" where it did not come to that.
  TimesByKind times = {};  // If the campaign counts them.
};
// Sets kind, failed, runs, and the verdict where the oracle is what is unstable. The failure stays
// a failure whatever the further runs say.
void classify(CaseRecord& record, const std::vector<FurtherRun>& further);

boost::json::object to_json(const TimesByKind& times);
TimesByKind times_from_json(const boost::json::object& object);
boost::json::object to_json(const CaseRecord& record);
CaseRecord record_from_json(const boost::json::value& value);

}  // namespace lockstep
