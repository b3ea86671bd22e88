// Ranges for a profiler: the step, and within it the microbatch, layer and part that calls at the
// device belong to, and whether they are captured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/device/ledger.h"
#include "engine/device/profiler.h"

namespace lockstep {

class ProfilerRanges {
 public:
  // `profiler` may be null, and must outlive the object.
  explicit ProfilerRanges(Profiler* profiler) : profiler_(profiler) {}
  ~ProfilerRanges();
  ProfilerRanges(const ProfilerRanges&) = delete;
  ProfilerRanges& operator=(const ProfilerRanges&) = delete;

  // The next calls belong to `place`; `captured`: they are noted for a graph.
  void at(const StepLocation& place, bool captured) {
    if (profiler_) move_to(place, captured);
  }
  // The next call launches a graph of what `ledger` lists: `what` it is, and its layer if it has
  // one.
  void at_launch(StepLocation place, const Ledger& ledger, const char* what);
  // The next calls belong nowhere.
  void leave();

 private:
  struct Range {
    std::string name;
    std::uint64_t number;
  };
  void move_to(const StepLocation& place, bool captured);
  void set(std::optional<Range>& range, const std::string& name);  // "" for none.
  Profiler* profiler_;
  std::optional<Range> step_, place_;
  StepLocation last_;
  bool last_captured_ = false;
};

}  // namespace lockstep
