// The files that a command writes and reads, as its user names them: checked before the work.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "harness/base/options.h"
#include "scenarios/scenario.h"

namespace lockstep {

class CommandFiles {
 public:
  // Outputs are --json, --junit, --html and the options `outputs`; what the command line names
  // without an option is read. Throws OutputClash (status 2) where an output is another output or
  // is read, and WorldError where it cannot be written.
  explicit CommandFiles(const Options& options, std::initializer_list<const char*> outputs = {});
  // Throws OutputClash where an output is this file or lies in this folder.
  void reads(const std::string& what, const std::string& path) const;
  // Throws OutputClash where an output is this path, at which the command makes a folder.
  void makes_folder(const std::string& what, const std::string& path) const;
  // The file or folder at data.path, if the scenario reads one.
  void reads_data_of(const Scenario& scenario) const;

 private:
  struct Output {
    std::string option;  // "--json"
    std::string path;
  };
  std::vector<Output> outputs_;
};

}  // namespace lockstep
