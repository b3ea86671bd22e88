// A folder of its own for a run, gone at the end. Its name says which process made it, and that
// process holds a lock on it: what a killed process left is found by both.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "harness/base/removed_at_exit.h"

namespace lockstep {

class RunFolder {
 public:
  RunFolder();  // Throws WorldError. Also removes those that are left.
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  ~RunFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::optional<RemovedAtExit> removed_;
  int lock_ = -1;
};

// Those of dead processes of this user. Every command begins with it.
void remove_run_folders_left();
// After the process was killed and waited for.
void remove_run_folders_of(pid_t process);

}  // namespace lockstep
