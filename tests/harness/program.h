// Runs the built `lockstep` as a user does.
#pragma once

#include <stdlib.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace lockstep {

// A folder of its own, gone at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(*this / name, std::ios::binary) << text;
    return *this / name;
  }

 private:
  std::string path_;
};

inline std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::string lockstep_program() {
  const char* folder = std::getenv("LOCKSTEP_BIN");
  return std::string(folder ? folder : LOCKSTEP_BUILD_BIN) + "/lockstep";
}

inline std::string library_path() {
  const char* root = std::getenv("LOCKSTEP_ROOT");
  return std::string(root ? root : LOCKSTEP_SOURCE_ROOT) + "/scenarios/library";
}

struct Ran {
  int status = -1;
  std::string out, err;
};

inline Ran run_lockstep(const std::string& words) {
  const TemporaryFolder folder;
  const int code =
      std::system((lockstep_program() + " " + words + " >" + (folder / "out") + " 2>" + (folder / "err")).c_str());
  return {WIFEXITED(code) ? WEXITSTATUS(code) : -1, slurp(folder / "out"), slurp(folder / "err")};
}

}  // namespace lockstep
