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

std::string bytes_text(const Box& box, const Allocation& allocation) {
  return "bytes " + std::to_string(box.base) + " to " + std::to_string(box.end() - 1) + " of the " +
         std::to_string(allocation.bytes) + "-byte " + (allocation.pinned ? "pinned" : "device") +
         " allocation " + std::to_string(allocation.id);
}

std::string why_undefined(const std::optional<Work>& by) {
  if (!by) return "nobody wrote it since it was allocated.";
  if (is_poison(*by)) return "it was poisoned before this use, and nobody wrote it since.";
  return describe(*by, "any") + " used it as scratch, and nobody wrote it since.";
}

bool in_one_replay(const Touch& a, const Touch& b) {
  return a.work.graph >= 0 && a.work.graph == b.work.graph && a.work.launch == b.work.launch;
}

}  // namespace

void Checker::report(HazardKind kind, const Touch& later, const std::optional<Touch>& earlier,
                     std::string detail, std::string memory) {
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
    if (found.memory.empty()) found.memory = bytes_text(later.box, allocation);
    found.allocation_bytes = allocation.bytes;
    found.pinned = allocation.pinned;
  }
  if (earlier && kind != HazardKind::overlap) found.event = event_after(*earlier, later);
  hazards_.push_back(std::move(found));
}

void Checker::report_undefined(const Touch& touch, const Undefined::Cause& cause) {
  report(HazardKind::use_before_write, touch, std::nullopt,
         "Byte " + std::to_string(cause.at) + " has no value: " + why_undefined(cause.by));
}

// The operand does not lie in the live allocation that it should.
void Checker::report_location(const CheckedOperand& operand, const Touch& touch) {
  const Allocation* const live = memory_.live_at(operand.bytes.base);
  if (operand.allocation >= 0) {
    const Allocation& captured = memory_[operand.allocation];
    report(
        HazardKind::use_after_free, touch, std::nullopt,
        live ? "Another allocation, " + std::to_string(live->id) +
                   ", has its address now. Keep the memory as long as the graph, or capture again."
             : "Keep the memory as long as the graph, or capture again.",
        std::to_string(captured.bytes) + "-byte allocation " + std::to_string(captured.id) +
            ", which was released after the graph was captured");
  } else if (live) {
    Box where = touch.box;
    where.base = static_cast<const std::byte*>(operand.bytes.base) - live->base;
    report(HazardKind::out_of_bounds, touch, std::nullopt,
           "The operand ends " + std::to_string(where.end() - live->bytes) +
               " bytes after its allocation.",
           bytes_text(where, *live));
  } else if (const Allocation* const gone = memory_.last_at(operand.bytes.base)) {
    report(HazardKind::use_after_free, touch, std::nullopt,
           "Release it after its last user was submitted and is over.",
           "the " + std::to_string(gone->bytes) + "-byte allocation " + std::to_string(gone->id) +
               ", which was released");
  } else {
    report(HazardKind::out_of_bounds, touch, std::nullopt, "The operand lies in no allocation.",
           "memory that was never allocated");
  }
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
