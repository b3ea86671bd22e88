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
  return static_cast<int>(std::find(plan.lanes.begin(), plan.lanes.end(), stream) -
                          plan.lanes.begin());
}

template <std::size_t kCount>
std::vector<CheckedOperand> list_of(const std::array<CheckedOperand, kCount>& operands) {
  return {operands.begin(), operands.end()};
}

// The same as eagerly: one item for each effect.
void add_exchange(GraphPlan& plan, GraphItem item, const ExchangeCall& call) {
  item.work.name = to_text(call.exchange.kind);
  if (call.exchange.ranks != nullptr) plan.communicators.insert(call.exchange.ranks);
  const bool sends = call.exchange.kind == CollectiveKind::send;
  const CopyKind kind = sends ? CopyKind::device_to_host : CopyKind::device_to_device;
  for (const Effect& effect : effects_of(call)) {
    item.operands = effect.from == nullptr
                        ? list_of(std::array{fill_operand(effect.to, effect.bytes)})
                        : list_of(copy_operands({effect.to, effect.from, effect.bytes, kind}));
    item.work.bytes = static_cast<std::int64_t>(effect.bytes);
    plan.items.push_back(item);
  }
}

void add_work(GraphPlan& plan, GraphItem item, const char* name, std::size_t bytes,
              std::vector<CheckedOperand> operands) {
  item.work.name = name;
  item.work.bytes = static_cast<std::int64_t>(bytes);
  item.operands = std::move(operands);
  plan.items.push_back(std::move(item));
}

void add_edge(GraphPlan& plan, GraphItem item, GraphItem::Kind kind, int event, bool external) {
  item.kind = kind;
  item.event = event;
  item.external = external;
  if (external) plan.external_events.insert(event);
  plan.items.push_back(std::move(item));
}

}  // namespace

std::array<CheckedOperand, 2> copy_operands(const CopyCall& copy) {
  const bool to_host = copy.kind == CopyKind::device_to_host;
  const bool from_host = copy.kind == CopyKind::host_to_device;
  return {CheckedOperand{whole(Access::out, copy.to, copy.bytes), 0, -1, to_host},
          CheckedOperand{whole(Access::in, copy.from, copy.bytes), 1, -1, from_host}};
}

CheckedOperand fill_operand(void* to, std::size_t bytes) { return {whole(Access::out, to, bytes)}; }

std::vector<CheckedOperand> op_operands(const Submission& op) {
  const std::vector<OperandBytes> operands = op.operands();
  std::vector<CheckedOperand> list;
  list.reserve(operands.size());
  for (const OperandBytes& bytes : operands) list.push_back({bytes, static_cast<int>(list.size())});
  return list;
}

GraphPlan plan_of(int origin, const Ledger& ledger) {
  GraphPlan plan;
  plan.origin = origin;
  plan.lanes = {origin};
  plan.items.reserve(ledger.entries().size());
  for (const IssuedCall& entry : ledger.entries()) {
    const GraphItem item{.kind = GraphItem::Kind::work,
                         .lane = lane_of(plan, entry.stream),
                         .stream = entry.stream,
                         .work = {.name = "", .place = entry.place},
                         .operands = {}};
    std::visit(Overloaded{
                   [&](const SubmitCall& c) {
                     add_work(plan, item, c.op.type().name, 0, op_operands(c.op));
                   },
                   [&](const CopyCall& c) {
                     add_work(plan, item, "copy", c.bytes, list_of(copy_operands(c)));
                   },
                   [&](const FillCall& c) {
                     add_work(plan, item, "fill", c.bytes,
                              list_of(std::array{fill_operand(c.to, c.bytes)}));
                   },
                   [&](const ExchangeCall& c) { add_exchange(plan, item, c); },
                   [&](const RecordCall& c) {
                     add_edge(plan, item, GraphItem::Kind::record, c.event, c.external);
                   },
                   [&](const WaitCall& c) {
                     add_edge(plan, item, GraphItem::Kind::wait, c.event, c.external);
                   },
                   [](const auto&) {},
               },
               entry.call);
  }
  return plan;
}

}  // namespace lockstep
