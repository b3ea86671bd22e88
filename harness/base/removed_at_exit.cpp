#include "harness/base/removed_at_exit.h"

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

namespace lockstep {
namespace {

struct List {
  std::mutex mutex;
  // A child process inherits the list, but not what is on it.
  std::map<std::pair<pid_t, std::string>, std::pair<dev_t, ino_t>> paths;
};
List& list() {
  static List* const all = new List;  // It outlives all statics.
  return *all;
}

// The device and the number of the file at a path, not of what a link there leads to; 0 for none.
std::pair<dev_t, ino_t> file_at(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

void remove(const std::string& path, const std::pair<dev_t, ino_t>& file) {
  if (file_at(path) != file) return;
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

RemovedAtExit::RemovedAtExit(std::string path) : path_(std::move(path)) {
  const std::lock_guard lock(list().mutex);
  list().paths.insert_or_assign({::getpid(), path_}, file_at(path_));
}

RemovedAtExit::~RemovedAtExit() {
  const std::lock_guard lock(list().mutex);
  const auto own = list().paths.find({::getpid(), path_});
  if (own == list().paths.end()) return;
  remove(path_, own->second);
  list().paths.erase(own);
}

void RemovedAtExit::remove_now() {
  const std::lock_guard lock(list().mutex);
  for (const auto& [owner, file] : list().paths) {
    if (owner.first == ::getpid()) remove(owner.second, file);
  }
}

}  // namespace lockstep
