#include "harness/base/removed_at_exit.h"

#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

namespace lockstep {
namespace {

struct List {
  std::mutex mutex;
  // A child process inherits the list, but not what is on it.
  std::set<std::pair<pid_t, std::string>> paths;
};
List& list() {
  static List* const all = new List;  // It outlives all statics.
  return *all;
}

void remove(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

RemovedAtExit::RemovedAtExit(std::string path) : path_(std::move(path)) {
  const std::lock_guard lock(list().mutex);
  list().paths.emplace(::getpid(), path_);
}

RemovedAtExit::~RemovedAtExit() {
  remove(path_);
  const std::lock_guard lock(list().mutex);
  list().paths.erase({::getpid(), path_});
}

void RemovedAtExit::remove_now() {
  const std::lock_guard lock(list().mutex);
  for (const auto& [process, path] : list().paths) {
    if (process == ::getpid()) remove(path);
  }
}

}  // namespace lockstep
