// Processes of a test: each runs a body, and its status and words come back.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "tests/support/program.h"

namespace lockstep::test {

struct Ended {
  int status = -1;  // For exit, 4 for a hang; -1 if a signal killed it.
  std::string words;
};

// Forked at once, waited for by end(), which returns one entry for each of `count` processes, at
// least one: a loop over them judges something. No thread may run in the test itself.
class Processes {
 public:
  Processes(int count, const std::function<int(int rank)>& body) {
    EXPECT_GT(count, 0);
    std::fflush(nullptr);
    for (int rank = 0; rank < count; ++rank) {
      pids_.push_back(::fork());
      if (pids_.back() == 0) ::_exit(run(rank, body));
    }
  }
  void kill(int rank) const { ::kill(pids_[static_cast<std::size_t>(rank)], SIGKILL); }
  Ended wait(int rank) {
    int status = 0;
    const pid_t pid = pids_[static_cast<std::size_t>(rank)];
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, slurp(words(rank))};
  }
  std::vector<Ended> end() {
    std::vector<Ended> list;
    for (std::size_t rank = 0; rank < pids_.size(); ++rank)
      list.push_back(wait(static_cast<int>(rank)));
    return list;
  }

 private:
  std::string words(int rank) const { return folder_ / ("words" + std::to_string(rank)); }
  int run(int rank, const std::function<int(int)>& body) const {
    try {
      return body(rank);
    } catch (const CollectiveHang& error) {
      static_cast<void>(folder_.file("words" + std::to_string(rank), error.what()));
      return 4;
    } catch (const std::exception& error) {
      static_cast<void>(folder_.file("words" + std::to_string(rank), error.what()));
      return 1;
    }
  }
  TemporaryFolder folder_;
  std::vector<pid_t> pids_;
};

}  // namespace lockstep::test
