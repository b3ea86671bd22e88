#include "harness/checker/graph_edges.h"

#include <algorithm>

namespace lockstep {
namespace {

OperandBytes whole(Access access, const void* base, std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(bytes);
  return {access, const_cast<void*>(base), 1, size, size};
}

int lane_of(GraphPlan& plan, int stream) {
  const auto found = std::find(plan.lanes.begin(), plan.lanes.end(), stream);
  if (found == plan.lanes.end()) plan.lanes.push_back(stream);
  return static_cast<int>(std::find(plan.lanes.begin(), plan.lanes.end(), stream) - plan.lanes.begin());
}

// As eagerly: one item for each thing that it does.
void add_exchange(GraphPlan& plan, GraphItem item, const LedgerEntry& entry) {
  item.work.name = to_text(entry.exchange->kind);
  for (const Effect& effect : effects_of(entry)) {
    item.operands = effect.from == nullptr
                        ? fill_operands(effect.to, effect.bytes)
                        : copy_operands(effect.to, effect.from, effect.bytes, CopyKind::device_to_device);
    item.work.bytes = static_cast<std::int64_t>(effect.bytes);
    plan.items.push_back(item);
  }
}

}  // namespace

std::vector<CheckedOperand> copy_operands(void* to, const void* from, std::size_t bytes, CopyKind kind) {
  return {{whole(Access::out, to, bytes), 0, -1, kind == CopyKind::device_to_host},
          {whole(Access::in, from, bytes), 1, -1, kind == CopyKind::host_to_device}};
}

std::vector<CheckedOperand> fill_operands(void* to, std::size_t bytes) { return {{whole(Access::out, to, bytes)}}; }

std::vector<CheckedOperand> op_operands(const Submission& op) {
  std::vector<CheckedOperand> list;
  for (const OperandBytes& bytes : op.operands()) list.push_back({bytes, static_cast<int>(list.size())});
  return list;
}

GraphPlan plan_of(int origin, const Ledger& ledger) {
  GraphPlan plan;
  plan.origin = origin;
  plan.lanes = {origin};
  for (const LedgerEntry& entry : ledger.entries()) {
    GraphItem item{.kind = entry.kind,
                   .lane = lane_of(plan, entry.stream),
                   .stream = entry.stream,
                   .work = {.name = "", .place = entry.place, .bytes = static_cast<std::int64_t>(entry.bytes)},
                   .operands = {},
                   .event = entry.event,
                   .external = entry.external};
    if (entry.kind == LedgerEntry::Kind::op) {
      item.work.name = entry.op->type().name;
      item.operands = op_operands(*entry.op);
    } else if (entry.kind == LedgerEntry::Kind::copy) {
      item.work.name = "copy";
      item.operands = copy_operands(entry.to, entry.from, entry.bytes, entry.copy_kind);
    } else if (entry.kind == LedgerEntry::Kind::fill) {
      item.work.name = "fill";
      item.operands = fill_operands(entry.to, entry.bytes);
    } else if (entry.kind == LedgerEntry::Kind::exchange) {
      add_exchange(plan, item, entry);
      continue;
    }
    plan.items.push_back(std::move(item));
  }
  return plan;
}

}  // namespace lockstep
