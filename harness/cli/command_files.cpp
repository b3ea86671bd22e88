#include "harness/cli/command_files.h"

#include <filesystem>

#include "harness/base/errors.h"
#include "harness/base/write_file.h"
#include "harness/run/rendezvous_address.h"
#include "scenarios/documents/layout.h"
#include "scenarios/documents/raw_documents.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A device or a pipe may be written twice, and read.
bool is_special(const std::string& path) {
  std::error_code unknown;
  return fs::exists(path, unknown) && !fs::is_regular_file(path, unknown) &&
         !fs::is_directory(path, unknown);
}

// The path is made absolute first: weakly_canonical leaves a relative path of which nothing exists
// relative, and "b.json" would be another file than "./b.json".
fs::path canonical(const std::string& path) {
  std::error_code unknown;
  return fs::weakly_canonical(fs::absolute(path, unknown), unknown);
}

// The same file under two names: by links, or by other words for its folder.
bool is_same(const std::string& a, const std::string& b) {
  std::error_code unknown;
  return fs::equivalent(a, b, unknown) || canonical(a) == canonical(b);
}

bool lies_in(const std::string& path, const std::string& folder) {
  std::error_code unknown;
  for (fs::path at = canonical(path); at.has_relative_path(); at = at.parent_path()) {
    if (fs::equivalent(at, folder, unknown)) return true;
  }
  return false;
}

}  // namespace

CommandFiles::CommandFiles(const Options& options, std::initializer_list<const char*> outputs) {
  std::vector<const char*> names{"json", "junit", "html"};
  names.insert(names.end(), outputs);
  for (const char* name : names) {
    if (!options.knows(name) || !options.has(name)) continue;
    const Output output{std::string("--") + name, options.text(name)};
    if (output.path.empty() || is_special(output.path)) continue;
    for (const Output& other : outputs_) {
      if (!is_same(output.path, other.path)) continue;
      throw OutputClash(other.option + " and " + output.option + " name one file, " + output.path);
    }
    outputs_.push_back(output);
  }
  std::error_code unknown;
  for (const std::string& word : options.words()) {
    // A folder stands for the scenarios in it: each file is checked when it is known.
    if (!fs::is_directory(word, unknown)) reads("the command", word);
  }
  if (!writes_reports_here()) return;
  for (const Output& output : outputs_) require_place_for(output.path);
}

void CommandFiles::reads(const std::string& what, const std::string& path) const {
  std::error_code unknown;
  for (const Output& output : outputs_) {
    const bool clash =
        fs::is_directory(path, unknown) ? lies_in(output.path, path) : is_same(output.path, path);
    if (!clash) continue;
    throw OutputClash(output.option + " " + output.path + " would overwrite what " + what +
                      " reads" + (output.path == path ? "" : ": " + path));
  }
}

void CommandFiles::makes_folder(const std::string& what, const std::string& path) const {
  if (path.empty()) return;
  for (const Output& output : outputs_) {
    if (is_same(output.path, path))
      throw OutputClash(output.option + " " + output.path + " names the folder of " + what);
  }
}

void CommandFiles::reads_data_of(const Scenario& scenario) const {
  if (reads_bytes(scenario.data)) reads("scenario " + scenario.name, data_path(scenario));
}

}  // namespace lockstep
