// Which case of a campaign runs next: further runs of what failed, then the corpus, then random
// ones.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "harness/campaign/book.h"
#include "harness/campaign/cases.h"

namespace lockstep {

class CampaignQueue {
 public:
  CampaignQueue(const CampaignOptions& options, CampaignBook& book)
      : options_(options), book_(book) {}

  // Returns nothing if no case is left or the campaign must end earlier, for which the report gives
  // the reason. `seconds` is the time that the campaign has run.
  std::optional<Job> next(double seconds);
  void run_again(Job job, int times);
  // Random cases of this shard that were not begun.
  std::int64_t left() const;
  // Marks the report as ended early; returns true, so that callers can `return end_early(...)`.
  bool end_early(const char* why);

 private:
  bool over(double seconds);
  std::optional<Job> next_of_corpus();
  std::optional<Job> next_random();

  const CampaignOptions& options_;
  CampaignBook& book_;
  std::deque<Job> again_;
  std::int64_t next_ = 0, next_corpus_ = 0;
};

}  // namespace lockstep
