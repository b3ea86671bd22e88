// An exception becomes an exit status, one line on stderr, and a report in the files of `--json`
// and `--junit`.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/errors.h"
#include "harness/case/verdict.h"

namespace lockstep {

struct Failure {
  ExitStatus status;
  std::string what;
  bool interrupted = false;    // A signal ended it.
  bool outputs_clash = false;  // What a report would replace is an input or another output.
};
Failure failure_at_hand();      // For the exception that is being handled.
Failure interrupted_failure();  // Where a signal leaves time for no exception.
boost::json::object to_json(const Failure& failure);
CaseResult to_result(const Failure& failure);  // For JUnit.

// Prints it and gives its status; `who` stands before its words ("lockstep: ", "lockstep: rank 2:
// ").
ExitStatus report_failure(const std::string& who);

// The files that `--json` and `--junit` name on a command line, and what they were before the
// command.
class FailureFiles {
 public:
  explicit FailureFiles(const std::vector<std::string>& words);
  // Writes a run without results and the failure as `error`, or a suite of one error, so that
  // nobody reads the file of an earlier run. A file that the command has written stays: it says
  // more. Of the processes of a launcher the first one writes.
  void write(const Failure& failure) const;

 private:
  using Identity = std::pair<unsigned long, long>;  // Index node and nanosecond of the last change.
  struct File {
    std::string path;  // Empty: there is none.
    Identity before;
  };
  static File named(const std::vector<std::string>& words, const std::string& option);
  static Identity identity(const std::string& path);
  static void write(const File& file, const std::string& text);

  File json_, junit_;
};

}  // namespace lockstep
