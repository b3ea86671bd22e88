// Short ways to read texts as scenario files in tests.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "scenarios/reader.h"
#include "scenarios/reader_stage.h"

namespace lockstep {

// A folder that is gone at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lockstep-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path(const std::string& name = "") const { return name.empty() ? path_ : path_ + "/" + name; }
  void write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << bytes;
  }

 private:
  std::string path_;
};

// A file with the two keys that have no default, and `rest`.
inline std::string with_head(const std::string& rest) { return "schema: 1\nname: a\n" + rest; }

// The rules that refuse a text in the reading stage, each as often as it does: "Y03 Y05 Y05", or "".
inline std::string reading_rules(const std::string& text, const std::string& file = "file.yaml") {
  std::string rules;
  for (const ScenarioError& error : read_stage(text, file).errors) rules += (rules.empty() ? "" : " ") + error.rule;
  return rules;
}

// The only error of a text, as printed; all of them if there are several.
inline std::string reading_error(const std::string& text, const std::string& file = "file.yaml") {
  std::string errors;
  for (const ScenarioError& error : read_stage(text, file).errors) {
    errors += (errors.empty() ? "" : "\n") + error.text();
  }
  return errors;
}

}  // namespace lockstep
