// The folder in which workers keep the case that they run. It lies beside the log, so that it is
// found after a crash, and is removed at a normal end.
#pragma once

#include <optional>
#include <string>

#include "harness/base/run_folder.h"

namespace lockstep {

class StateFolder {
 public:
  // `log`: a file, or "" or a device, for which the folder is a temporary one. Throws WorldError.
  explicit StateFolder(const std::string& log);
  // Throws what the constructor throws for a folder beside `log` that it cannot take, and makes
  // none.
  static void require_usable(const std::string& log);
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;
  ~StateFolder();
  const std::string& path() const { return path_; }

 private:
  std::optional<RunFolder> temporary_;
  std::string path_;
};

}  // namespace lockstep
