// Files and folders that do not outlive this process, however it ends but by SIGKILL.
#pragma once

#include <string>

namespace lockstep {

class RemovedAtExit {
 public:
  // `path` exists. What another process puts in its place later stays there; that it is another is
  // certain only while this process holds the first one open.
  explicit RemovedAtExit(std::string path);
  RemovedAtExit(const RemovedAtExit&) = delete;
  RemovedAtExit& operator=(const RemovedAtExit&) = delete;
  ~RemovedAtExit();  // Removes it, with all that is in it.
  const std::string& path() const { return path_; }
  // All of this process, where no destructor runs.
  static void remove_now();

 private:
  const std::string path_;
};

}  // namespace lockstep
