// Lets one run at a time save at a path: two would replace each other's checkpoint without a word.
#pragma once

#include <sys/types.h>

#include <string>

namespace lockstep {

class CheckpointLock {
 public:
  // Holds the lock file PATH.lock until the end. Throws RequestError where another run holds it,
  // and WorldError where it is another's file or cannot be made.
  explicit CheckpointLock(const std::string& checkpoint);
  ~CheckpointLock();
  CheckpointLock(const CheckpointLock&) = delete;
  CheckpointLock& operator=(const CheckpointLock&) = delete;

  void remove();  // The process ends without destroying this.

 private:
  bool is_held();
  bool is_in_place() const;

  const std::string path_;
  const pid_t maker_;  // Ranks are forks, for which nothing is to be removed.
  int descriptor_ = -1;
};

}  // namespace lockstep
