#include "harness/campaign/queue.h"

#include <algorithm>

#include "harness/base/interrupts.h"
#include "kernels/core/at.h"

namespace lockstep {

std::optional<Job> CampaignQueue::next(double seconds) {
  if (!again_.empty()) {
    const Job job = again_.front();
    again_.pop_front();
    return job;
  }
  if (over(seconds)) return {};
  const std::optional<Job> job = next_of_corpus();
  return job ? job : next_random();
}

void CampaignQueue::run_again(Job job, int times) {
  job.again = true;
  again_.insert(again_.end(), times, job);
}

std::optional<Job> CampaignQueue::next_of_corpus() {
  while (options_.only_case < 0 && next_corpus_ < std::ssize(book_.corpus())) {
    const Job job{.index = next_corpus_++, .corpus = true};
    // Every shard runs all of its corpus, which holds what that shard found itself.
    if (!book_.has(at(book_.corpus(), job.index))) return job;
  }
  return {};
}

std::optional<Job> CampaignQueue::next_random() {
  while (left() > 0) {
    const std::int64_t index =
        options_.only_case >= 0 ? options_.only_case : options_.shard + next_ * options_.shards;
    ++next_;
    if (!book_.has(index)) return Job{.index = index};
  }
  return {};
}

std::int64_t CampaignQueue::left() const {
  if (options_.only_case >= 0) return next_ == 0;
  if (options_.count == 0) return INT64_MAX;
  const std::int64_t mine =
      (options_.count - options_.shard + options_.shards - 1) / options_.shards;
  return std::max<std::int64_t>(0, mine - next_);
}

bool CampaignQueue::over(double seconds) {
  if (options_.stop_after > 0 && book_.report().failures() >= options_.stop_after) return true;
  if (Interrupts::came()) return end_early("it was interrupted");
  const bool spent = options_.budget_s > 0 && seconds >= options_.budget_s;
  return spent && (options_.count > 0 && left() > 0 ? end_early("the budget ended first") : true);
}

bool CampaignQueue::end_early(const char* why) {
  book_.report().ended_early = true;
  book_.report().interrupted = Interrupts::came();
  book_.report().why_early = why;
  return true;
}

}  // namespace lockstep
