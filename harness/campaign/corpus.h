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

// A file of the corpus that is no scenario of this revision.
struct UnreadableFile {
  std::string file;   // Relative to the corpus, before it was moved.
  std::string error;  // The first.
};
boost::json::array to_json(const std::vector<UnreadableFile>& files);
// Returns the sentence that tells the user of these files; "" for none.
std::string unreadable_text(const std::vector<UnreadableFile>& files);

class Corpus {
 public:
  // Makes the folder if need be, locks it, and removes what killed campaigns left half written.
  // Throws WorldError, or RequestError if another campaign has it.
  explicit Corpus(const std::string& folder);
  const std::string& folder() const { return folder_; }
  // Its files but those in unreadable/, relative, in byte order.
  std::vector<std::string> files() const;
  // The cases of these files. A file that is no scenario is moved to unreadable/, so that it stops
  // no later campaign, and is named in `unreadable` with its first error. Throws WorldError where
  // it cannot be moved.
  std::vector<CorpusCase> read(const std::vector<std::string>& files,
                               std::vector<UnreadableFile>& unreadable) const;
  // The name of the file for a class.
  static std::string file_of(const std::string& failure_class);
  // Writes this file, a path relative to the corpus, unless it exists. Returns whether it was
  // written.
  bool keep(const std::string& file, const std::string& text) const;

 private:
  void set_aside(const std::string& file) const;

  std::string folder_;
  std::unique_ptr<LockedFile> lock_;
};

}  // namespace lockstep
