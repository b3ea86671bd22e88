// The child's side of a campaign: a worker reads a job from its request, runs the case, and answers
// with the result.
#pragma once

#include <functional>
#include <string>

#include "harness/campaign/campaign.h"
#include "harness/campaign/cases.h"
#include "harness/run/request_worker.h"

namespace lockstep {

// The request that the parent writes to a worker, and the values that it reads from the answer: the
// result, and the oracle's digest of a further run.
std::string request_of(const Job& job);
FurtherRun run_of(const std::string& answer);

class CampaignJobs {
 public:
  CampaignJobs(const CampaignOptions& options, const CampaignCases& cases)
      : options_(options), cases_(cases) {}

  // Sets up worker `number`, which keeps the case that it runs in `state_folder`. One that starts
  // ranks on GPUs leaves all of those to them.
  WorkerSetup worker(int number, const std::string& state_folder, bool starts_ranks) const;

 private:
  // The ranks that are processes, in a worker: they stay from case to case.
  class Ranks;

  std::string answer(const Job& job, const std::string& file, Ranks& ranks,
                     const std::function<void(const std::string&)>& phase) const;
  void run_here(const Job& job, const CampaignCase& one, Ranks& ranks,
                const std::function<void(const std::string&)>& phase, FurtherRun& made) const;
  CaseResult run(const Job& job, const CampaignCase& one, Ranks& ranks) const;

  const CampaignOptions& options_;
  const CampaignCases& cases_;
};

}  // namespace lockstep
