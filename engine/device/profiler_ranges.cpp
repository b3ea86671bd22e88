#include "engine/device/profiler_ranges.h"

#include <algorithm>
#include <tuple>

namespace lockstep {
namespace {

auto fields(const StepLocation& place) {
  return std::tie(place.step, place.microbatch, place.layer, place.rank, place.part,
                  place.backward);
}

// The first layer of a graph of one microbatch; -1 if it has none, or more microbatches.
int layer_of(const Ledger& ledger) {
  const auto& entries = ledger.entries();
  const auto first = std::find_if(entries.begin(), entries.end(),
                                  [](const auto& one) { return one.place.layer >= 0; });
  if (first == entries.end()) return -1;
  const bool together = std::all_of(entries.begin(), entries.end(), [&](const auto& one) {
    return one.place.microbatch == first->place.microbatch;
  });
  return together ? first->place.layer : -1;
}

// "rank 1, microbatch 0, layer 2, backward, qkv": what is known of it.
std::string name_of(const StepLocation& place, bool captured) {
  std::string name;
  const auto add = [&](const std::string& word) { name += (name.empty() ? "" : ", ") + word; };
  if (place.rank > 0) add("rank " + std::to_string(place.rank));
  if (place.microbatch >= 0) add("microbatch " + std::to_string(place.microbatch));
  if (place.layer >= 0) add("layer " + std::to_string(place.layer));
  if (place.backward) add("backward");
  if (*place.part != 0) add(place.part);
  if (captured) add("captured");
  return name;
}

}  // namespace

ProfilerRanges::~ProfilerRanges() { leave(); }

void ProfilerRanges::leave() {
  if (!profiler_) return;
  last_ = {};
  last_captured_ = false;
  set(place_, "");
  set(step_, "");
}

void ProfilerRanges::at_launch(StepLocation place, const Ledger& ledger, const char* what) {
  if (!profiler_) return;
  place.layer = layer_of(ledger);
  place.part = what;
  move_to(place, false);
}

void ProfilerRanges::move_to(const StepLocation& place, bool captured) {
  if (fields(place) == fields(last_) && captured == last_captured_) return;  // Parts are literals.
  last_ = place;
  last_captured_ = captured;
  const std::string step = place.step >= 0 ? "step " + std::to_string(place.step) : "";
  // Ends before the step that it is in.
  if (step_ ? step_->name != step : !step.empty()) set(place_, "");
  set(step_, step);
  set(place_, name_of(place, captured));
}

void ProfilerRanges::set(std::optional<Range>& range, const std::string& name) {
  if (range ? range->name == name : name.empty()) return;
  if (range) profiler_->end(range->number);
  range.reset();
  if (!name.empty()) range = Range{name, profiler_->begin(name)};
}

}  // namespace lockstep
