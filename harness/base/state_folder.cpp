#include "harness/base/state_folder.h"

#include <filesystem>

#include "harness/base/errors.h"

namespace lockstep {

namespace fs = std::filesystem;

StateFolder::StateFolder(const std::string& log) {
  std::error_code error;
  if (!log.empty() && (fs::is_regular_file(log, error) || !fs::exists(log, error))) {
    path_ = log + ".state";
    fs::create_directories(path_, error);
    if (error) throw WorldError(path_ + ": cannot make this folder: " + error.message());
    return;
  }
  path_ = temporary_.emplace().path();
}

StateFolder::~StateFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace lockstep
