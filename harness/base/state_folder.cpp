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

// "" if the folder is a temporary one.
std::string path_beside(const std::string& log) {
  std::error_code error;
  const bool beside = !log.empty() && (fs::is_regular_file(log, error) || !fs::exists(log, error));
  return beside ? log + ".state" : "";
}

}  // namespace

void StateFolder::require_usable(const std::string& log) {
  const std::string path = path_beside(log);
  std::error_code error;
  if (path.empty()) return;
  if (fs::is_symlink(path, error)) throw WorldError(path + ": is a link, not a folder");
  if (fs::exists(path, error) && !fs::is_directory(path, error))
    throw WorldError(path + ": is a file, not a folder");
  require_ours(path);
}

StateFolder::StateFolder(const std::string& log) {
  path_ = path_beside(log);
  if (!path_.empty()) {
    std::error_code error;
    require_usable(log);
    fs::create_directory(path_, error);
    if (error) throw WorldError(path_ + ": cannot make this folder: " + error.message());
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
