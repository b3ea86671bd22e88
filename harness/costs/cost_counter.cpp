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

void CostCounter::Memory::add(std::int64_t more) {
  bytes += more;
  peak = std::max(peak, bytes);
}

void CostCounter::Memory::end_steps(std::int64_t next) {
  while (std::ssize(after) < next) after.push_back(bytes);
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
    rank.end_steps(rank.step);
  }
  if (const auto* allocated = issued.as<AllocateCall>())
    return allocate(*allocated, issued.place.rank);
  count_work(issued);
}

void CostCounter::close(int rank) {
  Rank& closed = ranks_[rank];
  closed.closed = true;
  closed.end_steps(closed.step + 1);
}

void CostCounter::count_objects(const IssuedCall& issued) {
  const int rank = issued.place.rank;
  std::visit(Overloaded{
                 [&](const CreateStreamCall&) { create(Object::stream, issued.stream, rank); },
                 [&](const DestroyStreamCall&) { destroy(Object::stream, issued.stream); },
                 [&](const CreateEventCall& call) { create(Object::event, call.event, rank); },
                 [&](const DestroyEventCall& call) { destroy(Object::event, call.event); },
                 [&](const EndCaptureCall& call) { create(Object::graph, call.graph, rank); },
                 [&](const DestroyGraphCall& call) { destroy(Object::graph, call.graph); },
                 [](const auto&) {},
             },
             issued.call);
}

void CostCounter::create(Object kind, int number, int rank) {
  if (ranks_[rank].closed) return;
  owners_[{kind, number}] = rank;
  ranks_[rank].objects.add(1);
  if (kind == Object::graph) ranks_[rank].graphs.add(1);
}

void CostCounter::destroy(Object kind, int number) {
  const auto found = owners_.find({kind, number});
  if (found == owners_.end()) return;  // The harness's own.
  Rank& owner = ranks_[found->second];
  if (!owner.closed) owner.objects.add(-1);
  if (!owner.closed && kind == Object::graph) owner.graphs.add(-1);
  owners_.erase(found);
}

void CostCounter::count_work(const IssuedCall& issued) {
  std::visit(Overloaded{
                 [&](const SubmitCall& call) { count("ops", call.op.type().name); },
                 [&](const CopyCall& call) {
                   count("copies", direction(call.kind));
                   count("copies", std::string(direction(call.kind)) + "_bytes",
                         static_cast<std::int64_t>(call.bytes));
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

void CostCounter::allocate(const AllocateCall& call, int rank) {
  const auto bytes = static_cast<std::int64_t>(call.bytes);
  allocations_[call.memory] = {rank, bytes};
  (call.pinned ? ranks_[rank].pinned : ranks_[rank].device).add(bytes);
  count("memory", call.pinned ? "pinned_allocations" : "device_allocations");
}

void CostCounter::release(const ReleaseCall& call) {
  const auto found = allocations_.find(call.memory);
  if (found == allocations_.end()) return;  // The harness's own.
  Rank& owner = ranks_[found->second.rank];
  if (!owner.closed) (call.pinned ? owner.pinned : owner.device).add(-found->second.bytes);
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
  for (const auto& [number, rank] : ranks_) {
    add(sum.device, rank.device.after);
    add(sum.pinned, rank.pinned.after);
    add(sum.objects, rank.objects.after);
    add(sum.graphs, rank.graphs.after);
  }
  return sum;
}

}  // namespace lockstep
