#include "engine/place_ranges.h"

namespace lockstep {
namespace {

// "rank 1, microbatch 0, layer 2, qkv": what is known of it.
std::string name_of(const Place& place) {
  std::string name;
  const auto add = [&](const std::string& word) { name += (name.empty() ? "" : ", ") + word; };
  if (place.rank > 0) add("rank " + std::to_string(place.rank));
  if (place.microbatch >= 0) add("microbatch " + std::to_string(place.microbatch));
  if (place.layer >= 0) add("layer " + std::to_string(place.layer));
  if (*place.part != 0) add(place.part);
  return name;
}

}  // namespace

PlaceRanges::~PlaceRanges() {
  if (!profiler_) return;
  set(place_, "");
  set(step_, "");
}

void PlaceRanges::move_to(const Place& place) {
  const std::string step = place.step >= 0 ? "step " + std::to_string(place.step) : "";
  if (step_ ? step_->name != step : !step.empty()) set(place_, "");  // Ends before the step that it is in.
  set(step_, step);
  set(place_, name_of(place));
}

void PlaceRanges::set(std::optional<Range>& range, const std::string& name) {
  if (range ? range->name == name : name.empty()) return;
  if (range) profiler_->end(range->number);
  range.reset();
  if (!name.empty()) range = Range{name, profiler_->begin(name)};
}

}  // namespace lockstep
