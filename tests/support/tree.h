// The folders that a test reads, in a build and in an installed tree. They are found from where the
// program lies, so that no program holds the path of the machine that it was built on.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace lockstep {

// The folder that holds share/lockstep: two above the test program. In a build tree the scenarios
// there are a link to those of the source tree.
inline std::filesystem::path tree_of_this_program() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().parent_path();
}

// The folder that has scenarios/ and tests/: LOCKSTEP_ROOT, which ctest sets, or found.
inline std::string root_path() {
  if (const char* root = std::getenv("LOCKSTEP_ROOT")) return root;
  const std::filesystem::path scenarios = tree_of_this_program() / "share/lockstep/scenarios";
  std::error_code absent;
  const std::filesystem::path found = std::filesystem::canonical(scenarios, absent);
  if (absent) throw std::runtime_error(scenarios.string() + " is not there; set LOCKSTEP_ROOT");
  return found.parent_path().string();
}

}  // namespace lockstep
