// Runs the built `lockstep` as a user does.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/temporary_folder.h"
#include "tests/support/tree.h"

namespace lockstep {

inline std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::string lockstep_program() {
  const char* folder = std::getenv("LOCKSTEP_BIN");
  return (folder ? std::string(folder) : (tree_of_this_program() / "bin").string()) + "/lockstep";
}

inline std::string library_path() { return root_path() + "/scenarios/library"; }

// The file of the library's scenario `name`, in whichever room it lies; else a path that does not
// exist.
inline std::string library_file(const std::string& name) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(library_path())) {
    if (entry.path().filename() == name + ".yaml") return entry.path().string();
  }
  return library_path() + "/" + name + ".yaml";
}

// A command for the shell in which the folders of the tests stand without quotes: their spaces are
// escaped.
inline std::string shell_command(std::string text) {
  for (const std::string& folder :
       {root_path(), std::filesystem::path(lockstep_program()).parent_path().string()}) {
    std::string escaped;
    for (const char c : folder) escaped += c == ' ' ? "\\ " : std::string(1, c);
    if (escaped == folder) continue;
    for (std::size_t at = text.find(folder); at != std::string::npos;
         at = text.find(folder, at + escaped.size())) {
      text.replace(at, folder.size(), escaped);
    }
  }
  return text;
}

struct Ran {
  int status = -1;
  std::string out, err;
};

inline Ran run_lockstep(const std::string& words) {
  const TemporaryFolder folder;
  const std::string command = lockstep_program() + " " + words;
  const int code = std::system(
      (shell_command(command) + " >" + (folder / "out") + " 2>" + (folder / "err")).c_str());
  return {WIFEXITED(code) ? WEXITSTATUS(code) : -1, slurp(folder / "out"), slurp(folder / "err")};
}

}  // namespace lockstep
