// A worker: a child process that answers requests, one line each, until it dies or is replaced.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

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
  bool echo = false;  // Copies its stderr to this process's as it comes.
};

class RequestWorker {
 public:
  explicit RequestWorker(const WorkerSetup& setup);
  RequestWorker(const RequestWorker&) = delete;
  RequestWorker& operator=(const RequestWorker&) = delete;
  ~RequestWorker();  // Kills the child if it lives.

  void ask(const std::string& request);
  // False once the child has closed its end, which it does by dying.
  bool is_open() const { return open_; }
  // The answer of the last request, once it is whole.
  std::optional<std::string> take_answer();
  const std::string& phase() const { return phase_; }
  int served() const { return served_; }  // Answers so far.
  // What it wrote to its stderr since the last request.
  const std::string& said() const { return said_; }

  // Returns where a hung child is, innermost function first; "" if it does not report that within
  // half a second.
  std::string where();
  // Kills the child if it lives, reaps it, and returns how it ended.
  ChildEnd end();

  // Reads what these have written; waits for it up to so many milliseconds. Null ones are left out.
  static void listen(const std::vector<RequestWorker*>& workers, int milliseconds);

 private:
  void read_answers();
  void read_words();

  const bool echo_;
  pid_t child_ = -1;
  int requests_ = -1, answers_ = -1, words_ = -1;
  std::string unread_, said_, phase_;
  std::optional<std::string> answer_;
  int served_ = 0;
  bool open_ = true;
};

}  // namespace lockstep
