// A worker of a campaign: a child process that answers requests, one line each, until it dies or is
// replaced.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "harness/base/subprocess.h"
#include "harness/run/worker.h"

namespace lockstep {

struct WorkerSetup {
  // Called once in the child, before the first request.
  std::function<void()> begin;
  // Returns the answer to a request, in the child. It reports its progress to the parent by
  // `phase`.
  std::function<std::string(const std::string& request,
                            const std::function<void(const std::string&)>& phase)>
      answer;
};

class CampaignWorker {
 public:
  explicit CampaignWorker(const WorkerSetup& setup);
  CampaignWorker(const CampaignWorker&) = delete;
  CampaignWorker& operator=(const CampaignWorker&) = delete;
  ~CampaignWorker();  // Kills the child if it lives.

  void ask(const std::string& request);
  int answers() const { return answers_; }  // For poll().
  int words() const { return words_; }
  // Reads what there is; false when the child has closed its end, which it does by dying.
  bool read_answers();
  void read_words();
  // The answer of the last request, once it is whole.
  std::optional<std::string> take_answer();
  const std::string& phase() const { return phase_; }
  int served() const { return served_; }  // Answers so far.

  // Returns where a hung child is, innermost function first; "" if it does not report that within
  // half a second.
  std::string where();
  // Kills the child if it lives, reaps it, and returns how it ended.
  ChildEnd end();

 private:
  pid_t child_ = -1;
  int requests_ = -1, answers_ = -1, words_ = -1;
  std::string unread_, said_, phase_;
  std::optional<std::string> answer_;
  int served_ = 0;
};

}  // namespace lockstep
