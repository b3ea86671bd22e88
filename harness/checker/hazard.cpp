#include "harness/checker/hazard.h"

#include <set>
#include <string_view>
#include <tuple>

#include "kernels/core/at.h"

namespace lockstep {
namespace {

bool is_host(const std::string& stream) { return stream == "the host"; }

std::string place_text(const Work& work) {
  const StepLocation& place = work.place;
  std::string out;
  const auto add = [&out](const std::string& part) { out += (out.empty() ? "" : ", ") + part; };
  if (*place.part) add(place.part);
  if (place.layer >= 0) add("layer " + std::to_string(place.layer));
  if (place.microbatch >= 0) {
    add((work.graph < 0 ? "microbatch " : "captured for microbatch ") +
        std::to_string(place.microbatch));
  }
  if (place.step >= 0) add("step " + std::to_string(place.step));
  return out;
}

// "replay 1 of graph 0", or its capture, which is before every launch. "" of eager work.
std::string replay_text(const Work& work) {
  if (work.graph < 0) return "";
  const std::string when =
      work.launch < 0 ? "the capture" : "replay " + std::to_string(work.launch);
  return when + " of graph " + std::to_string(work.graph);
}

std::string verb(const Touch& touch) {
  const bool copy = std::string(touch.work.name) == "copy";
  if (copy) return touch.operand == 0 ? "writes its destination" : "reads its source";
  const std::string name = std::string(touch.work.name);
  if (name == "fill" || name == "write" || name == "read" || name == "release") return "";
  const std::string operand = std::string(" its `") + touch.name + "`";
  switch (touch.mode) {
    case Access::in:
      return "reads" + operand;
    case Access::out:
      return "writes" + operand;
    case Access::accum:
      return "updates" + operand;
    case Access::scratch:
      return "uses" + operand + " as scratch";
  }
  return "";
}

const char* access_text(Access mode) {
  switch (mode) {
    case Access::in:
      return "reads";
    case Access::out:
      return "writes";
    case Access::accum:
      return "updates";
    case Access::scratch:
      return "uses as scratch";
  }
  return "";
}

HazardSide side_of(const Touch& touch, const std::string& stream) {
  const Work& work = touch.work;
  return {.stream = stream,
          .work = work.bytes > 0 ? work.name + (" of " + std::to_string(work.bytes) + " bytes")
                                 : work.name,
          .place = place_text(work),
          .replay = replay_text(work),
          .operand = touch.name,
          .access = access_text(touch.mode),
          .rank = work.place.rank,
          .first = touch.box.base,
          .rows = touch.box.rows,
          .width = touch.box.width,
          .pitch = touch.box.pitch};
}

std::string said(const Touch& touch, const std::string& stream) {
  const std::string what = verb(touch);
  return describe(touch.work, stream) + (what.empty() ? "" : ", which " + what + ",");
}

}  // namespace

bool is_look(const Hazard& hazard) {
  const bool race =
      hazard.kind == HazardKind::read_after_write || hazard.kind == HazardKind::use_before_write;
  return race && std::string_view(hazard.later.work.place.part) == kLook;
}

const char* to_text(HazardKind kind) {
  static constexpr const char* kNames[] = {
      "read after write", "write after read", "write after write",      "use before write",
      "use after free",   "out of bounds",    "destroyed while in use", "overlapping operands"};
  return at(kNames, kind);
}

std::string describe(const Work& work, const std::string& stream) {
  std::string out = work.name;
  if (is_host(stream)) out = "the host's " + out;
  if (work.bytes > 0) out += " of " + std::to_string(work.bytes) + " bytes";
  const std::string place = place_text(work);
  if (!place.empty()) out += " (" + place + ")";
  if (work.graph >= 0) out += (work.launch < 0 ? " at " : " in ") + replay_text(work);
  return is_host(stream) ? out : out + " on stream " + stream;
}

std::string text(const Hazard& h) {
  const std::string start = std::string(to_text(h.kind)) + ": " + said(h.later, h.later_stream);
  if (h.kind == HazardKind::destroyed_in_use)
    return std::string(to_text(h.kind)) + ": " + h.memory + ". " + h.detail;
  if (h.kind == HazardKind::overlap) {
    return start + " names the same bytes twice: " + h.memory + " are also its `" +
           h.earlier->name + "`. " + h.detail;
  }
  if (!h.earlier) return start + " touches " + h.memory + ". " + h.detail;
  return start + " is not ordered after " + said(*h.earlier, h.earlier_stream) +
         " although both touch " + h.memory + ". " + h.detail;
}

HazardRecord record_of(const Hazard& h) {
  HazardRecord record{.kind = to_text(h.kind),
                      .later = side_of(h.later, h.later_stream),
                      .earlier = std::nullopt,
                      .allocation = h.later.allocation,
                      .allocation_bytes = h.allocation_bytes,
                      .pinned = h.pinned,
                      .event = h.event,
                      .text = text(h)};
  if (h.earlier) record.earlier = side_of(*h.earlier, h.earlier_stream);
  return record;
}

std::vector<Hazard> distinct(const std::vector<Hazard>& hazards) {
  using Key = std::tuple<HazardKind, std::string, int, std::string, std::string, int, std::string>;
  std::set<Key> seen;
  std::vector<Hazard> list;
  for (const Hazard& h : hazards) {
    const bool destroyed = h.kind == HazardKind::destroyed_in_use;
    Key key{h.kind,
            destroyed ? h.memory : h.later.work.name,
            h.later.operand,
            h.later_stream,
            "",
            -1,
            h.earlier_stream};
    if (h.earlier) std::get<4>(key) = h.earlier->work.name, std::get<5>(key) = h.earlier->operand;
    if (seen.insert(std::move(key)).second) list.push_back(h);
  }
  return list;
}

}  // namespace lockstep
