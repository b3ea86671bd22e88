#include "engine/device/ledger.h"

#include <algorithm>
#include <bit>
#include <cstdio>

#include "kernels/diagnostics/poison.h"

namespace lockstep {

bool operator==(const ExchangeCall& a, const ExchangeCall& b) {
  return a.to == b.to && a.from == b.from && call_text(a) == call_text(b);
}

std::string call_text(const ExchangeCall& call) {
  const CollectiveName& name = call.exchange.name;
  return std::string(to_text(call.exchange.kind)) + " (" + name.purpose +
         (name.unit >= 0 ? " of unit " + std::to_string(name.unit) : "") + ", " +
         std::to_string(call.bytes) + " bytes a rank)";
}

std::vector<Effect> effects_of(const ExchangeCall& call) {
  const Exchange& exchange = call.exchange;
  const auto size = static_cast<std::size_t>(exchange.size),
             own = static_cast<std::size_t>(exchange.rank);
  const auto to = [&](std::size_t peer) {
    return static_cast<std::byte*>(call.to) + peer * call.bytes;
  };
  const auto from = [&](std::size_t peer) {
    return static_cast<const std::byte*>(call.from) + peer * call.bytes;
  };
  std::vector<Effect> effects;
  switch (exchange.kind) {
    case CollectiveKind::all_gather:
      for (std::size_t peer = 0; peer < size; ++peer) {
        if (peer != own) effects.push_back({to(peer), nullptr, call.bytes});
        if (peer == own && to(peer) != call.from)
          effects.push_back({to(peer), call.from, call.bytes});
      }
      break;
    case CollectiveKind::all_to_all:
      effects.push_back({call.to, call.from, size * call.bytes});
      break;
    case CollectiveKind::reduce_scatter:
      for (std::size_t peer = 0; peer < size; ++peer)
        effects.push_back({call.to, from(peer), call.bytes});
      break;
    case CollectiveKind::all_reduce:
    case CollectiveKind::receive:
      effects.push_back({call.to, nullptr, call.bytes});
      break;
    case CollectiveKind::send:
      // No call of a stream reads alone. A communicator that keeps a copy of what it sends has
      // memory of the host for it.
      if (call.to != nullptr) effects.push_back({call.to, call.from, call.bytes});
      break;
    case CollectiveKind::barrier:
    case CollectiveKind::launch:
      break;
  }
  return effects;
}

std::int64_t bytes_poisoned(const Submission& op) {
  const PoisonMemory* poison = op.as<PoisonMemory>();
  return poison ? poison->memory.rows * poison->memory.cols * 2 : 0;
}

namespace {

// Says no addresses: a reason is the same in each process that runs the case.
constexpr char kMoved[] = "is not where it was captured";

std::string text(const StepLocation& place) {
  std::string out;
  if (place.step >= 0) out += ", step " + std::to_string(place.step);
  if (place.microbatch >= 0) out += ", microbatch " + std::to_string(place.microbatch);
  if (place.layer >= 0) out += ", layer " + std::to_string(place.layer);
  if (*place.part) out += std::string(", ") + place.part;
  return out;
}

std::string name(const DeviceCall& call) {
  const auto event = [](bool external, const char* what, int number) {
    return (external ? std::string("external ") : "") + what + " event " + std::to_string(number);
  };
  return std::visit(
      Overloaded{
          [](const SubmitCall& c) -> std::string { return c.op.type().name; },
          [](const CopyCall& c) { return "copy of " + std::to_string(c.bytes) + " bytes"; },
          [](const FillCall& c) { return "fill of " + std::to_string(c.bytes) + " bytes"; },
          [&](const RecordCall& c) { return event(c.external, "record of", c.event); },
          [&](const WaitCall& c) { return event(c.external, "wait for", c.event); },
          [](const ExchangeCall& c) { return call_text(c); },
          [](const auto&) { return std::string(); },
      },
      call);
}

std::string operand_difference(const OperandBytes& was, const OperandBytes& is) {
  if (was.base != is.base) return kMoved;
  if (was.rows != is.rows)
    return "has " + std::to_string(is.rows) + " rows, was captured with " +
           std::to_string(was.rows);
  if (was.row_bytes != is.row_bytes) {
    return "has rows of " + std::to_string(is.row_bytes) + " bytes, was captured with " +
           std::to_string(was.row_bytes);
  }
  if (was.pitch_bytes != is.pitch_bytes) {
    return "has a pitch of " + std::to_string(is.pitch_bytes) + " bytes, was captured with " +
           std::to_string(was.pitch_bytes);
  }
  return "";
}

// The operands are equal, so the first word that differs belongs to a scalar.
std::string scalar_difference(const Submission& was, const Submission& is) {
  const auto* a = static_cast<const std::byte*>(was.op());
  const auto* b = static_cast<const std::byte*>(is.op());
  for (std::size_t at = 0; at + 4 <= was.type().size; at += 4) {
    std::uint32_t x, y;
    std::memcpy(&x, a + at, 4);
    std::memcpy(&y, b + at, 4);
    if (x == y) continue;
    char buffer[160];
    std::snprintf(buffer, sizeof buffer,
                  "the scalar %s changed from 0x%08x (%d, %g) to 0x%08x (%d, %g)",
                  was.type().field_at(at), x, static_cast<int>(x), std::bit_cast<float>(x), y,
                  static_cast<int>(y), std::bit_cast<float>(y));
    return buffer;
  }
  return "a scalar is NaN";
}

std::string op_difference(const Submission& was, const Submission& is) {
  const std::vector<OperandBytes> a = was.operands(), b = is.operands();
  if (a.size() != b.size()) {
    return "has " + std::to_string(b.size()) + " operands, was captured with " +
           std::to_string(a.size());
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::string what = operand_difference(a[i], b[i]);
    if (!what.empty()) return "operand " + std::string(b[i].name) + " " + what;
  }
  return scalar_difference(was, is);
}

// The memory that a call names outside of operands.
struct NamedMemory {
  const void* to = nullptr;
  const void* from = nullptr;
  int byte = 0;
};
NamedMemory memory_of(const DeviceCall& call) {
  return std::visit(Overloaded{
                        [](const CopyCall& c) -> NamedMemory {
                          return {c.to, c.from};
                        },
                        [](const FillCall& c) -> NamedMemory {
                          return {c.to, nullptr, c.byte};
                        },
                        [](const ExchangeCall& c) -> NamedMemory {
                          return {c.to, c.from};
                        },
                        [](const auto&) -> NamedMemory { return {}; },
                    },
                    call);
}

std::string entry_difference(const IssuedCall& was, const IssuedCall& is) {
  const auto *op = was.as<SubmitCall>(), *op_now = is.as<SubmitCall>();
  const bool other_op = op && op_now && &op->op.type() != &op_now->op.type();
  const std::string others = "is " + name(is.call) + ", was captured as " + name(was.call);
  if (was.call.index() != is.call.index() || other_op) return others;
  if (was.stream != is.stream) {
    return "is on stream " + std::to_string(is.stream) + ", was captured on stream " +
           std::to_string(was.stream);
  }
  if (op) return op_difference(op->op, op_now->op);
  const NamedMemory memory = memory_of(was.call), now = memory_of(is.call);
  if (memory.to != now.to) return std::string("the destination ") + kMoved;
  if (memory.from != now.from) return std::string("the source ") + kMoved;
  if (memory.byte != now.byte) {
    return "the byte is " + std::to_string(now.byte) + ", was captured as " +
           std::to_string(memory.byte);
  }
  return others;
}

}  // namespace

std::string difference(const Ledger& captured, const Ledger& now) {
  const std::vector<IssuedCall>&a = captured.entries(), &b = now.entries();
  const std::size_t common = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (a[i] == b[i]) continue;
    return "entry " + std::to_string(i) + text(b[i].place) + ": " + name(a[i].call) + ": " +
           entry_difference(a[i], b[i]);
  }
  if (a.size() == b.size()) return "";
  const bool missing = a.size() > b.size();
  const IssuedCall& odd = missing ? a[common] : b[common];
  return "entry " + std::to_string(common) + text(odd.place) + ": " + name(odd.call) +
         (missing ? ": captured, but missing now" : ": not captured, but there now") + " (" +
         std::to_string(a.size()) + " entries captured, " + std::to_string(b.size()) + " now)";
}

}  // namespace lockstep
