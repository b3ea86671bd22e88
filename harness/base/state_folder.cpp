#include "harness/base/state_folder.h"

#include <filesystem>

#include "harness/base/errors.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

// Files of a campaign's workers, which a killed campaign leaves.
bool is_ours(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  return name.starts_with("worker-") && entry.symlink_status().type() == fs::file_type::regular;
}

void require_ours(const std::string& path) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (is_ours(entry)) continue;
    throw WorldError(path +
                     ": this folder is for the files of workers, which are removed at the "
                     "end, and holds " +
                     entry.path().filename().string());
  }
}

}  // namespace

StateFolder::StateFolder(const std::string& log) {
  std::error_code error;
  if (!log.empty() && (fs::is_regular_file(log, error) || !fs::exists(log, error))) {
    path_ = log + ".state";
    if (fs::is_symlink(path_, error)) throw WorldError(path_ + ": is a link, not a folder");
    fs::create_directory(path_, error);
    if (error) throw WorldError(path_ + ": cannot make this folder: " + error.message());
    require_ours(path_);
    return;
  }
  path_ = temporary_.emplace().path();
}

StateFolder::~StateFolder() {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, ignored)) {
    if (is_ours(entry)) fs::remove(entry.path(), ignored);
  }
  fs::remove(path_, ignored);
}

}  // namespace lockstep
