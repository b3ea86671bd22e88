// A folder of its own for a run, gone at the end; if the run is killed, at the start of the next.
#pragma once

#include <string>

namespace lockstep {

class RunFolder {
 public:
  RunFolder();  // Throws WorldError.
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  ~RunFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lock_ = -1;
};

}  // namespace lockstep
