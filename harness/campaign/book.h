// The files that a campaign writes: the log, the corpus, and the report of its end.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/campaign/campaign.h"
#include "harness/campaign/cases.h"
#include "harness/campaign/corpus.h"
#include "harness/campaign/log.h"

namespace lockstep {

class CampaignBook {
 public:
  // Opens and locks log and corpus, and remembers what a resumed log holds. Throws RequestError and
  // WorldError.
  explicit CampaignBook(const CampaignOptions& options);

  // The corpus as it was when the campaign began, so that what this campaign finds is not replayed
  // by it.
  const std::vector<CorpusCase>& corpus() const { return corpus_cases_; }
  // Whether the log had it already.
  bool has(std::int64_t index) const { return done_.contains(index); }
  bool has(const CorpusCase& one) const;

  // The file first, then the line of the log: a campaign that is killed between them runs the case
  // again and finds the file there.
  void finish(CaseRecord record, const CampaignCase& one);
  CampaignReport& report() { return report_; }

 private:
  void open_corpus();
  void read_corpus(std::vector<std::string>& files);
  void remember();
  // `number` of the log's line, counted from 1.
  CaseRecord record_of(const boost::json::value& line, std::size_t number) const;
  void keep(CaseRecord& record, const CampaignCase& one);
  std::string explained(const CaseRecord& record, const CampaignCase& one) const;

  const CampaignOptions& options_;
  std::unique_ptr<Corpus> corpus_;
  std::unique_ptr<CampaignLog> log_;
  std::vector<CorpusCase> corpus_cases_;
  std::set<std::int64_t> done_;
  std::set<std::pair<std::string, std::string>> done_corpus_;  // File and precision.
  CampaignReport report_;
};

}  // namespace lockstep
