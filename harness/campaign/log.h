// The log of a campaign: NDJSON, a header with what decides the cases, then one line a case. A line
// is one append to the file, so that a campaign that is killed loses no case and repeats none;
// failures, and the rest twice a second, are synced to the disk, so that a machine that goes down
// loses half a second of cases, which --resume runs again.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "harness/base/stopwatch.h"

namespace lockstep {

// A file that one process at a time holds, by flock(2).
class LockedFile {
 public:
  // Throws WorldError where it cannot be opened for writing, RequestError where another process
  // holds it.
  LockedFile(const std::string& path, const std::string& what);
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  ~LockedFile();
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

class CampaignLog {
 public:
  // A new log gets `header`. One that has lines is continued: `resume` must be set, and its header
  // must agree with `header` in every key (RequestError else). A torn last line is cut off: its
  // case is run again.
  CampaignLog(const std::string& path, bool resume);
  // The header that the log had when it was opened, null in a new log.
  const boost::json::value& header() const { return header_; }
  void begin(const boost::json::object& header);
  // Lines of cases that were done before.
  const std::vector<boost::json::value>& done() const { return done_; }
  // Refuses a line, counted from 1, that is none of a campaign's: throws RequestError.
  [[noreturn]] void refuse(std::size_t line) const;
  // Throws WorldError if the line cannot be written whole; then it is not in the log.
  void append(const boost::json::object& line, bool urgent);

 private:
  void read(bool resume);
  bool synced(bool urgent);
  std::string path_;
  LockedFile file_;
  boost::json::value header_;
  std::vector<boost::json::value> done_;
  std::size_t lines_ = 0;
  Stopwatch since_sync_;
};

}  // namespace lockstep
