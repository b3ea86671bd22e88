// The cases of a campaign, by job. The parent and its workers make them from the same values, so
// that a request is a few bytes; the parent makes their records, too.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "harness/base/subprocess.h"
#include "harness/campaign/campaign.h"
#include "harness/campaign/corpus.h"
#include "harness/generate/case.h"

namespace lockstep {

struct Job {
  std::int64_t index = 0;  // For a random case, or in the corpus.
  bool corpus = false;
  bool again = false;  // A further run of a failing case: in a fresh process, and the oracle is run
                       // by itself too.
  friend auto operator<=>(const Job&, const Job&) = default;
};

class CampaignCases {
 public:
  CampaignCases(const CampaignOptions& options, const std::vector<CorpusCase>& corpus)
      : options_(options), corpus_(corpus) {}

  CampaignCase make(const Job& job) const;
  RunOptions run_options(const Job& job) const;
  // The result of a run as the campaign counts it: a case of the corpus may expect a failure.
  CaseResult judged(const Job& job, const CampaignCase& one, CaseResult result) const;
  // The result of a case that is decided by being read: one of the corpus, or one that this machine
  // lacks something for.
  std::optional<CaseResult> decided(const Job& job, const CampaignCase& one) const;
  // The result where a worker died before it answered.
  CaseResult death(const Job& job, const CampaignCase& one, const ChildEnd& end) const;
  // All but the result.
  CaseRecord record(const Job& job, const CampaignCase& one) const;

  // Whether the case's ranks are processes on GPUs, which the process that starts them must not
  // have opened.
  bool starts_ranks_on_gpus(const CampaignCase& one) const;

 private:
  std::optional<CaseResult> lacking_machine(const CampaignCase& one) const;

  const CampaignOptions& options_;
  const std::vector<CorpusCase>& corpus_;
};

}  // namespace lockstep
