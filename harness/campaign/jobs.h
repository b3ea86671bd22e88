// Data that a campaign's parent and its workers share: the cases, by name. Both sides make them
// from the same values, so that a request is a few bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/subprocess.h"
#include "harness/campaign/campaign.h"
#include "harness/campaign/corpus.h"
#include "harness/generate/case.h"
#include "harness/run/request_worker.h"

namespace lockstep {

struct Job {
  std::int64_t index = 0;  // For a random case, or in the corpus.
  bool corpus = false;
  bool again = false;  // A further run of a failing case: in a fresh process, and the oracle is run
                       // by itself too.
  friend auto operator<=>(const Job&, const Job&) = default;
};

class CampaignJobs {
 public:
  CampaignJobs(const CampaignOptions& options, const std::vector<CorpusCase>& corpus)
      : options_(options), corpus_(corpus) {}

  CampaignCase make(const Job& job) const;
  // The result of a corpus's case that is decided by being read.
  std::optional<CaseResult> decided(const Job& job) const;
  // All but the result.
  CaseRecord record(const Job& job, const CampaignCase& one) const;
  RunOptions run_options(const Job& job) const;

  // The child's side for worker `number`, which keeps the case that it runs in `state_folder`.
  WorkerSetup worker(int number, const std::string& state_folder) const;
  static std::string request(const Job& job);
  // Reads the answer: the result, and the oracle's digest of a further run.
  static FurtherRun answer(const std::string& text);
  // Where no answer came.
  CaseResult death(const Job& job, const CampaignCase& one, const ChildEnd& end) const;

 private:
  std::string answer(const Job& job, const std::string& file,
                     const std::function<void(const std::string&)>& phase) const;
  void run_here(const Job& job, const CampaignCase& one,
                const std::function<void(const std::string&)>& phase, FurtherRun& made) const;
  CaseResult run(const Job& job, const CampaignCase& one) const;
  CaseResult judged(const Job& job, const CampaignCase& one, CaseResult result) const;

  const CampaignOptions& options_;
  const std::vector<CorpusCase>& corpus_;
};

}  // namespace lockstep
