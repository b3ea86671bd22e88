// The checker notes a hazard with its streams, an event and the edge that would order the two
// accesses, and ends the run.
#include <algorithm>
#include <utility>

#include "harness/checker/checker.h"

namespace lockstep {
namespace {

// A report draws so many hazards; its sentence counts them all.
constexpr std::size_t kMostRecords = 8;

std::string short_name(const Work& work) {
  return work.name +
         (work.bytes > 0 ? " of " + std::to_string(work.bytes) + " bytes" : std::string());
}

bool in_one_replay(const Touch& a, const Touch& b) {
  return a.work.graph >= 0 && a.work.graph == b.work.graph && a.work.launch == b.work.launch;
}

}  // namespace

void Checker::report(HazardKind kind, const Touch& later, const std::optional<Touch>& earlier,
                     std::string memory, std::string detail) {
  const auto name = [this](const Touch& touch) { return at(threads_, touch.thread).name; };
  Hazard found{kind,
               later,
               earlier,
               name(later),
               earlier ? name(*earlier) : "",
               std::move(memory),
               std::move(detail)};
  if (later.allocation >= 0) {
    const Allocation& allocation = memory_[later.allocation];
    found.allocation_bytes = allocation.bytes;
    found.pinned = allocation.pinned;
  }
  if (earlier && kind != HazardKind::overlap) found.event = event_after(*earlier, later);
  hazards_.push_back(std::move(found));
}

void Checker::throw_found() const {
  if (hazards_.empty()) return;
  const std::vector<Hazard> list = distinct(hazards_);
  const auto of_the_program = std::ranges::find_if_not(list, is_look);
  std::string all = text(of_the_program == list.end() ? list.front() : *of_the_program);
  const std::size_t others = list.size() - 1;
  if (others > 0)
    all += " (and " + std::to_string(others) + (others == 1 ? " other hazard)" : " other hazards)");
  std::vector<HazardRecord> records;
  for (std::size_t i = 0; i < std::min(list.size(), kMostRecords); ++i)
    records.push_back(record_of(list[i]));
  const std::ptrdiff_t told = of_the_program == list.end() ? 0 : of_the_program - list.begin();
  if (told < std::ssize(records)) std::swap(records.front(), at(records, told));
  throw HazardViolation(all, std::move(records));
}

void Checker::stop_if_found() {
  // An op of the program may read too early what a look did: that one names the bug.
  if (!options_.stop || std::ranges::all_of(hazards_, is_look)) return;
  stopped_ = true;
  throw_found();
}

int Checker::event_after(const Touch& earlier, const Touch& later) const {
  const int stream = at(threads_, earlier.thread).stream;
  if (stream < 0 || in_one_replay(earlier, later)) return -1;
  for (int id = 0; id < std::ssize(events_); ++id) {
    const EventState& state = at(events_, id);
    if (state.recorded && state.stream == stream && state.clock.at(earlier.thread) >= earlier.time)
      return id;
  }
  return -1;
}

std::string Checker::missing_edge(const Touch& later, const Touch& earlier) {
  const Thread& after = at(threads_, later.thread);
  const Thread& before = at(threads_, earlier.thread);
  const std::string what = short_name(earlier.work), then = short_name(later.work);
  const std::string place = "Missing edge: " + before.name + " -> " + after.name + ". ";
  if (in_one_replay(later, earlier)) {
    return place + "While the graph is captured, record an event on " + stream_name(before.stream) +
           " after " + what + " and wait for it on " + stream_name(after.stream) + " before " +
           then + ".";
  }
  if (before.stream < 0) {
    return place + "Let the ranks meet between " + before.name + "'s " + what + " and " + then +
           ".";
  }
  const std::string act = after.stream < 0
                              ? "synchronise with it before the host's " + then
                              : "wait for it on " + stream_name(after.stream) + " before " + then;
  if (const int id = event_after(earlier, later); id >= 0) {
    return place + "Event " + std::to_string(id) + " was recorded on " + before.name + " after " +
           what + ": " + act + ".";
  }
  return place + "Record an event on " + stream_name(before.stream) + " after " + what + ", and " +
         act + ".";
}

}  // namespace lockstep
