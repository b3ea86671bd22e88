// Ranges for a profiler: the step, and within it the microbatch, layer and part that calls at the device door belong
// to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/observer.h"
#include "engine/profiler.h"

namespace lockstep {

class PlaceRanges {
 public:
  // `profiler` may be null, and must outlive the object.
  explicit PlaceRanges(Profiler* profiler) : profiler_(profiler) {}
  ~PlaceRanges();
  PlaceRanges(const PlaceRanges&) = delete;
  PlaceRanges& operator=(const PlaceRanges&) = delete;

  // The next calls belong to `place`.
  void at(const Place& place) {
    if (profiler_) move_to(place);
  }

 private:
  struct Range {
    std::string name;
    std::uint64_t number;
  };
  void move_to(const Place& place);
  void set(std::optional<Range>& range, const std::string& name);  // "" for none.
  Profiler* profiler_;
  std::optional<Range> step_, place_;
};

}  // namespace lockstep
