// The file of a SharedMemoryStore: memory that processes of one user on one machine share.
#pragma once

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>

namespace lockstep {

// Where the processes of a run find their segment.
struct SharedPlace {
  std::string path;
  // How the paths of all such segments of this user begin. Then the segment's own path ends at
  // random, so that nobody can take it beforehand. "": the segment is at `path` itself.
  std::string family = {};
};
SharedPlace place_of_job(const std::string& job);

// Something is at the path that no lockstep of this user made. It stays as it is.
class PlaceIsTaken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A segment as its maker has it. Others join it while this object lives, in this process or in
// those that were forked from it: its lock tells it from what a killed process left.
class SharedSegment {
 public:
  // `bytes` of zeros, but for the first page, which open_segment() checks. Replaces an earlier
  // segment of the same path; in a family it removes all that were left.
  SharedSegment(const SharedPlace& place, int ranks, std::size_t bytes);
  SharedSegment(SharedSegment&& from) noexcept;
  ~SharedSegment();  // Removes the file.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int file_ = -1;
};

// Maps the segments at the place, one after the other, until `join` takes one; false if it took
// none. It is asked about those alone that lie in a file of this user with mode 0600, that have
// this number of ranks and `bytes`, and whose maker lives. A path that is something else throws
// std::runtime_error; in a family it is passed over.
bool open_segment(const SharedPlace& place, int ranks, std::size_t bytes,
                  const std::function<bool(void* memory)>& join);

}  // namespace lockstep
