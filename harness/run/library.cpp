#include "harness/run/library.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "harness/base/errors.h"

namespace lockstep {

namespace fs = std::filesystem;

// `name` / `below` of share/lockstep. In a build tree `name` is a link to the sources.
static std::string shared_folder(const char* name, const char* below) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path beside = program.parent_path().parent_path();  // Tests lie a folder deeper.
  const fs::path shared = fs::path("share/lockstep") / name;
  for (const fs::path& tree : {beside, beside.parent_path()}) {
    const fs::path folder = tree / shared / below;
    if (!fs::is_directory(folder, error)) continue;
    return fs::is_symlink(tree / shared) ? fs::canonical(folder).string() : folder.string();
  }
  return (beside / shared / below).string();  // Whoever reads it says that it is not there.
}

std::string library_folder() {
  if (const char* set = std::getenv("LOCKSTEP_LIBRARY"); set && *set) return set;
  return shared_folder("scenarios", "library");
}

std::string adapters_folder() {
  return fs::path(shared_folder("adapters", "lockstep_adapter")).parent_path().string();
}

std::vector<std::string> library_files() {
  const fs::path library = library_folder();
  std::vector<std::string> list = scenario_files(library.string());
  const fs::path regressions = library.parent_path() / "regressions";
  std::error_code error;
  if (library.filename() == "library" && fs::is_directory(regressions, error)) {
    for (std::string& file : scenario_files(regressions.string())) list.push_back(std::move(file));
  }
  return list;
}

std::vector<std::string> scenario_files(const std::string& folder) {
  std::vector<std::string> list;
  try {
    for (fs::recursive_directory_iterator at(folder), end; at != end; ++at) {
      const fs::directory_entry& entry = *at;
      // Folders of tools, as .git and .github, hold other people's files.
      if (entry.is_directory() && entry.path().filename().string().starts_with("."))
        at.disable_recursion_pending();
      const std::string extension = entry.path().extension().string();
      if (entry.is_regular_file() && !entry.is_symlink() &&
          (extension == ".yaml" || extension == ".yml")) {
        list.push_back(entry.path().string());
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw RequestError(folder + ": cannot be walked: " + error.code().message());
  }
  std::sort(list.begin(), list.end());
  return list;
}

bool lies_under_refused(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return std::find(folder.begin(), folder.end(), "refused") != folder.end();
}

}  // namespace lockstep
