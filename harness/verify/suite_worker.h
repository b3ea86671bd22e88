// The child's side of `verify`: a worker reads the number of a case from its request, judges the
// case, and answers with the result.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/run/rank_teams.h"
#include "harness/run/request_worker.h"
#include "harness/run/suite.h"

namespace lockstep {

// Judges one case in the process that calls it.
using CaseJudge = std::function<CaseResult(const Scenario& scenario, const RunOptions& run)>;

// `cases`, `run` and `judge` outlive it.
class SuiteWorker {
 public:
  SuiteWorker(const std::vector<PlannedCase>& cases, const RunOptions& run, const CaseJudge& judge);

  // The GPUs that the worker itself opens: that of its number, or none, since the processes of its
  // cases' ranks do.
  enum class Opens : std::uint8_t { one_gpu, none };
  WorkerSetup setup(int number, Opens opens);

 private:
  std::string answer(const std::string& request,
                     const std::function<void(const std::string&)>& phase);

  const std::vector<PlannedCase>& cases_;
  const RunOptions& run_;
  const CaseJudge& judge_;
  RankTeams teams_;
};

}  // namespace lockstep
