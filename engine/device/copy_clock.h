// Which copies of a capture come before a stream's position, by the events that were recorded and
// waited for: a vector clock that counts each stream's copies.
#pragma once

#include <algorithm>
#include <map>

namespace lockstep {

class CopyClock {
 public:
  using Id = const void*;  // For a stream or an event.

  void copied(Id stream) { ++at_[stream][stream]; }
  void recorded(Id stream, Id event) {
    if (!at_.empty()) recorded_[event] = at_[stream];
  }
  void waited(Id stream, Id event) {
    const auto found = recorded_.find(event);
    if (found == recorded_.end()) return;
    for (const auto& [of, count] : found->second)
      at_[stream][of] = std::max(at_[stream][of], count);
  }
  // Whether all copies of `stream` come before where `end` is.
  bool joined(Id stream, Id end) { return at_[end][stream] == at_[stream][stream]; }
  void clear() {
    at_.clear();
    recorded_.clear();
  }

 private:
  using Counts = std::map<Id, int>;
  std::map<Id, Counts> at_, recorded_;
};

}  // namespace lockstep
