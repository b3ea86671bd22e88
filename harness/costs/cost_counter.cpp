#include "harness/costs/cost_counter.h"

#include <algorithm>
#include <string_view>

#include "engine/device/ledger.h"

namespace lockstep {
namespace {

const char* direction(CopyKind kind) {
  switch (kind) {
    case CopyKind::host_to_device:
      return "h2d";
    case CopyKind::device_to_host:
      return "d2h";
    default:
      return "d2d";
  }
}

}  // namespace

void CostCounter::Memory::add(std::int64_t more, const std::string& origin) {
  bytes += more;
  peak = std::max(peak, bytes);
  if ((from[origin] += more) == 0) from.erase(origin);
}

void CostCounter::Memory::end_steps(std::int64_t next) {
  while (std::ssize(after) < next) {
    after.push_back(bytes);
    from_after.push_back(from);
  }
}

std::string CostCounter::Rank::origin(const StepLocation& place) const {
  std::string text = place.step < 0         ? "the start"
                     : evaluates            ? "an evaluation"
                     : place.microbatch < 0 ? "a step"
                     : place.backward       ? "a backward pass"
                                            : "a forward pass";
  if (place.layer >= 0) text += ", layer " + std::to_string(place.layer);
  if (*place.part != '\0') text += std::string(", ") + place.part;
  return text;
}

void CostCounter::Rank::end_steps(std::int64_t next) {
  for (Memory* one : {&device, &pinned, &objects, &graphs}) one->end_steps(next);
}

void CostCounter::on_call(const IssuedCall& issued) {
  if (std::string_view(issued.place.part) == "look") return;
  Rank& rank = ranks_[issued.place.rank];
  if (const auto* released = issued.as<ReleaseCall>()) release(*released);
  count_objects(issued);
  if (rank.closed) return;
  if (issued.place.step > rank.step) {
    rank.step = issued.place.step;
    rank.evaluates = false;
    rank.end_steps(rank.step);
  }
  if (const auto* allocated = issued.as<AllocateCall>()) return allocate(*allocated, issued.place);
  count_work(issued);
  if (issued.as<BeginCaptureCall>()) rank.captures = true;
  if (issued.as<EndCaptureCall>() || issued.as<AbortCaptureCall>()) rank.captures = false;
  if (const auto* launch = issued.as<LaunchCall>()) {
    for (const IssuedCall& one : launch->captured->entries()) count_recomputed(one);
  } else if (!rank.captures) {
    count_recomputed(issued);
  }
}

void CostCounter::count_recomputed(const IssuedCall& issued) {
  const auto* submitted = issued.as<SubmitCall>();
  if (submitted != nullptr && issued.place.recomputes() && !issued.place.before_capture)
    ++recomputed_[{issued.place.layer, submitted->op.type().name}];
}

void CostCounter::close(int rank) {
  Rank& closed = ranks_[rank];
  closed.closed = true;
  closed.end_steps(closed.step + 1);
}

void CostCounter::count_objects(const IssuedCall& issued) {
  const StepLocation& place = issued.place;
  std::visit(Overloaded{
                 [&](const CreateStreamCall&) { create(Object::stream, issued.stream, place); },
                 [&](const DestroyStreamCall&) { destroy(Object::stream, issued.stream); },
                 [&](const CreateEventCall& call) { create(Object::event, call.event, place); },
                 [&](const DestroyEventCall& call) { destroy(Object::event, call.event); },
                 [&](const EndCaptureCall& call) { create(Object::graph, call.graph, place); },
                 [&](const DestroyGraphCall& call) { destroy(Object::graph, call.graph); },
                 [](const auto&) {},
             },
             issued.call);
}

void CostCounter::create(Object kind, int number, const StepLocation& place) {
  Rank& rank = ranks_[place.rank];
  if (rank.closed) return;
  const std::string origin = rank.origin(place);
  owners_[{kind, number}] = {place.rank, origin};
  rank.objects.add(1, origin);
  if (kind == Object::graph) rank.graphs.add(1, origin);
}

void CostCounter::destroy(Object kind, int number) {
  const auto found = owners_.find({kind, number});
  if (found == owners_.end()) return;  // The harness's own.
  const auto& [rank, origin] = found->second;
  Rank& owner = ranks_[rank];
  if (!owner.closed) owner.objects.add(-1, origin);
  if (!owner.closed && kind == Object::graph) owner.graphs.add(-1, origin);
  owners_.erase(found);
}

void CostCounter::count_work(const IssuedCall& issued) {
  std::visit(Overloaded{
                 [&](const SubmitCall& call) { count("ops", call.op.type().name); },
                 [&](const CopyCall& call) {
                   count("copies", direction(call.kind));
                   count("copies", std::string(direction(call.kind)) + "_bytes",
                         static_cast<std::int64_t>(call.bytes));
                   count_pageable(call, issued.place);
                 },
                 [&](const FillCall&) { count("calls", "fills"); },
                 [&](const RecordCall&) { count("calls", "records"); },
                 [&](const WaitCall&) { count("calls", "waits"); },
                 [&](const ExchangeCall&) { count("calls", "exchanges"); },
                 [&](const CreateStreamCall&) { count("calls", "streams"); },
                 [&](const CreateEventCall&) { count("calls", "events"); },
                 [&](const EndCaptureCall&) { count("calls", "captures"); },
                 [&](const LaunchCall& call) {
                   count("calls", "launches");
                   for (const IssuedCall& one : call.captured->entries()) count_work(one);
                 },
                 [&](const SyncCall& call) {
                   count("host_waits", call.event < 0 ? "for_stream" : "for_event");
                 },
                 [](const auto&) {},
             },
             issued.call);
}

void CostCounter::count_pageable(const CopyCall& copy, const StepLocation& place) {
  if (place.step < 0 || copy.bytes == 0) return;
  if (copy.kind != CopyKind::host_to_device && copy.kind != CopyKind::device_to_host) return;
  const void* const host = copy.kind == CopyKind::host_to_device ? copy.from : copy.to;
  const auto behind = allocations_.upper_bound(host);
  const bool is_known =
      behind != allocations_.begin() &&
      static_cast<const std::byte*>(host) <
          static_cast<const std::byte*>(std::prev(behind)->first) + std::prev(behind)->second.bytes;
  if (is_known || pageable_++ > 0) return;
  first_pageable_ = "a copy of " + std::to_string(copy.bytes) + " bytes in step " +
                    std::to_string(place.step) + " (" + ranks_[place.rank].origin(place) + ")";
}

std::string CostCounter::pageable_copies() const {
  if (pageable_ == 0) return "";
  const std::string others = pageable_ == 1 ? "" : " (" + std::to_string(pageable_) + " in all)";
  return first_pageable_ +
         " is from or to memory that is not pinned, so that the host waits for it" + others;
}

void CostCounter::allocate(const AllocateCall& call, const StepLocation& place) {
  const auto bytes = static_cast<std::int64_t>(call.bytes);
  Rank& rank = ranks_[place.rank];
  const std::string origin = rank.origin(place);
  allocations_[call.memory] = {place.rank, bytes, origin};
  (call.pinned ? rank.pinned : rank.device).add(bytes, origin);
  count("memory", call.pinned ? "pinned_allocations" : "device_allocations");
}

void CostCounter::release(const ReleaseCall& call) {
  const auto found = allocations_.find(call.memory);
  if (found == allocations_.end()) return;  // The harness's own.
  const Allocation& one = found->second;
  Rank& owner = ranks_[one.rank];
  if (!owner.closed) (call.pinned ? owner.pinned : owner.device).add(-one.bytes, one.origin);
  allocations_.erase(found);
}

Costs CostCounter::costs() const {
  Costs all = costs_;
  for (const auto& [number, rank] : ranks_) {
    all["memory"]["device_peak"] += rank.device.peak;
    all["memory"]["pinned_peak"] += rank.pinned.peak;
    if (!rank.device.after.empty()) all["memory"]["device_end"] += rank.device.after.back();
    if (!rank.pinned.after.empty()) all["memory"]["pinned_end"] += rank.pinned.after.back();
  }
  return all;
}

StepMemory CostCounter::step_memory() const {
  StepMemory sum;
  const auto add = [](std::vector<std::int64_t>& to, const std::vector<std::int64_t>& from) {
    to.resize(std::max(to.size(), from.size()));
    for (std::size_t step = 0; step < from.size(); ++step) to[step] += from[step];
  };
  const auto add_origins = [](StepMemory::Origins& to, const StepMemory::Origins& from) {
    to.resize(std::max(to.size(), from.size()));
    for (std::size_t step = 0; step < from.size(); ++step) {
      for (const auto& [origin, count] : from[step]) to[step][origin] += count;
    }
  };
  for (const auto& [number, rank] : ranks_) {
    add_origins(sum.device_from, rank.device.from_after);
    add_origins(sum.pinned_from, rank.pinned.from_after);
    add_origins(sum.objects_from, rank.objects.from_after);
    add(sum.device, rank.device.after);
    add(sum.pinned, rank.pinned.after);
    add(sum.objects, rank.objects.after);
    add(sum.graphs, rank.graphs.after);
  }
  return sum;
}

}  // namespace lockstep
