// A folder of scenarios that a campaign replays first, and where it leaves the cases that fail: one
// file a class.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness/campaign/log.h"
#include "harness/run/suite.h"

namespace lockstep {

// Failures of one class have one cause as far as we can see: judge, op, and kind of tensor; where
// no tensor differs, the reason without its numbers.
std::string class_of(const CaseResult& result);

struct CorpusCase {
  std::string file;  // Relative to the corpus.
  PlannedCase planned;
};

class Corpus {
 public:
  // Makes the folder if need be, locks it, and removes what killed campaigns left half written.
  // Throws WorldError, or RequestError if another campaign has it.
  explicit Corpus(const std::string& folder);
  const std::string& folder() const { return folder_; }
  // Its files, relative, in byte order.
  std::vector<std::string> files() const;
  // The cases of these files. Throws RequestError, with all refusals, for a file that is no
  // scenario.
  std::vector<CorpusCase> read(const std::vector<std::string>& files) const;
  // The name of the file for a class.
  static std::string file_of(const std::string& failure_class);
  // Writes this file, a path relative to the corpus, unless it exists. Returns whether it was
  // written.
  bool keep(const std::string& file, const std::string& text) const;

 private:
  std::string folder_;
  std::unique_ptr<LockedFile> lock_;
};

}  // namespace lockstep
