// The report of all mutant evaluations: the table on stdout, and the JSON of docs/cli.md.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "harness/mutate/mutant_evaluation.h"

namespace lockstep {

struct MutationScore {
  std::int64_t faults = 0;  // Faults that were run to the end.
  std::int64_t unfinished = 0;
  std::int64_t equivalent = 0;
  // Killed by values alone; by values alone, but only in another order; by values alone, but only
  // where reused memory has no value; only by a judge of order, addresses, graphs or counts.
  std::int64_t bits = 0;
  std::int64_t delayed = 0;
  std::int64_t poisoned = 0;
  std::int64_t judges = 0;
  std::int64_t wrong_reason = 0;
  std::int64_t survived = 0;  // Some of these were named, but for another reason: wrong_reason.
  std::int64_t median = 0, p95 = 0;  // Cases until killed.
  std::int64_t killed() const { return bits + delayed + poisoned + judges; }
};
MutationScore score(const std::vector<Fault>& faults,
                    const std::vector<EvaluationOutcome>& outcomes, Fault::Kind kind);

// A case for each fault, for JUnit: one that survived is violated, one that was not run gave up.
std::vector<CaseResult> mutation_cases_for_junit(const std::vector<Fault>& faults,
                                                 const std::vector<EvaluationOutcome>& outcomes);
std::string score_text(const std::vector<Fault>& faults,
                       const std::vector<EvaluationOutcome>& outcomes);
// A line for each fault that was killed, with the judge and the scenario; "" for more than twenty
// faults, of which the page and the JSON tell.
std::string killers_text(const std::vector<Fault>& faults,
                         const std::vector<EvaluationOutcome>& outcomes);
std::string survivors_text(const std::vector<Fault>& faults,
                           const std::vector<EvaluationOutcome>& outcomes);
// Write and read the report, so that the files of several machines can be joined. Reading throws
// RequestError for a file that is no such report, or of another revision. `asked` holds the options
// that determine the faults, and the share.
boost::json::object mutation_json(const boost::json::object& asked,
                                  const std::vector<Fault>& faults,
                                  const std::vector<EvaluationOutcome>& outcomes, double seconds);
// Returns what was asked. `interrupted` becomes true where the report says that a signal came.
boost::json::object add_mutation_json(const std::string& file, std::vector<Fault>& faults,
                                      std::vector<EvaluationOutcome>& outcomes, double& seconds,
                                      bool& interrupted);

}  // namespace lockstep
