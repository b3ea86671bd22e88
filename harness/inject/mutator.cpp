#include "harness/inject/mutator.h"

#include <algorithm>
#include <cstring>

#include "harness/inject/patch.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

const char* layer_word(char symbol) {
  switch (symbol) {
    case 'M':
      return "mamba";
    case '*':
      return "attention";
    case '-':
      return "mlp";
    default:
      return "moe";
  }
}

const char* copy_word(CopyKind kind) {
  return kind == CopyKind::host_to_device   ? "h2d"
         : kind == CopyKind::device_to_host ? "d2h"
                                            : "d2d";
}

std::size_t span_of(const OperandBytes& operand) {
  return operand.rows == 0 ? 0
                           : static_cast<std::size_t>((operand.rows - 1) * operand.pitch_bytes +
                                                      operand.row_bytes);
}

}  // namespace

// ---- Sites --------------------------------------------------------------------------------------

bool DeviceMutator::strikes(DeviceOperator op, const std::string& site) {
  const std::int64_t index = at(sites_, op)[site]++;
  if (!fault_ || fault_->op != op || fault_->index != index || fault_->site != site) return false;
  ++triggered_;
  return mode_ != Mode::mark;
}

bool DeviceMutator::harness_looks() const {
  const char* part = device_->place.part;
  return busy_ || !std::strcmp(part, "look") || !std::strcmp(part, "poison") ||
         !std::strcmp(part, "padding");
}

// "mamba/scan", "step/optimizer": kind of the layer and part of it.
std::string DeviceMutator::where(const StepLocation& place) const {
  const bool in_layer = place.layer >= 0 && place.layer < static_cast<int>(pattern_.size());
  std::string text = in_layer ? layer_word(at(pattern_, place.layer)) : "step";
  if (*place.part) text += std::string("/") + place.part;
  return text;
}

std::string DeviceMutator::site_of(const IssuedCall& call) const {
  const auto name = [this](int stream) { return at(streams_, stream); };
  std::string site =
      std::string(device_->capturing() ? "captured/" : "eager/") + name(call.stream) + "/";
  const std::string in_step = site + where(call.place) + "/";
  return std::visit(
      Overloaded{
          [&](const SubmitCall& c) { return in_step + c.op.type().name; },
          [&](const CopyCall& c) { return in_step + copy_word(c.kind); },
          [&](const FillCall&) { return in_step + "fill"; },
          [&](const ExchangeCall& c) { return in_step + to_text(c.exchange.kind); },
          [&](const RecordCall&) { return site + "record"; },
          [&](const WaitCall& c) { return site + "wait-for-" + name(recorded_.at(c.event)); },
          [&](const auto&) { return site; },
      },
      call.call);
}

// ---- Calls --------------------------------------------------------------------------------------

std::vector<IssuedCall> DeviceMutator::instead_of(const IssuedCall& asked, bool dry_run) {
  const IssuedCall call = moved(asked);
  if (dry_run || harness_looks()) return {call};
  const std::int64_t before = triggered_;
  std::vector<IssuedCall> calls = mutated(call);
  if (mode_ != Mode::strike && triggered_ > before && !calls.empty()) mark(calls.front());
  return calls;
}

// On `sim` in program order without delays, all earlier calls are complete.
void DeviceMutator::mark(IssuedCall& call) {
  call.place.part = kMark;
  if (device_->capturing()) return;
  if (const auto* copy = call.as<CopyCall>())
    changed_nothing_ = std::memcmp(copy->to, copy->from, copy->bytes) == 0;
  if (const auto* fill = call.as<FillCall>()) {
    const auto* to = static_cast<const std::byte*>(fill->to);
    const auto filled = static_cast<std::byte>(fill->byte);
    changed_nothing_ =
        std::all_of(to, to + fill->bytes, [filled](std::byte byte) { return byte == filled; });
  }
}

std::vector<IssuedCall> DeviceMutator::mutated(IssuedCall call) {
  using Calls = std::vector<IssuedCall>;
  const auto dropped_by = [&](DeviceOperator op) {
    return strikes(op, site_of(call)) ? Calls{} : Calls{call};
  };
  return std::visit(Overloaded{
                        [&](const WaitCall& wait) -> Calls {
                          // It waits for nothing.
                          if (!recorded_.contains(wait.event)) return {call};
                          const std::string site = site_of(call);
                          if (strikes(DeviceOperator::drop_wait, site)) return {};
                          if (strikes(DeviceOperator::move_wait, site))
                            call.stream = other_stream(call.stream);
                          return {call};
                        },
                        [&](const RecordCall& record) -> Calls {
                          const std::string site = site_of(call);
                          if (strikes(DeviceOperator::drop_record, site)) return {};
                          if (strikes(DeviceOperator::move_record, site))
                            call.stream = other_stream(call.stream);
                          recorded_[record.event] = call.stream;
                          return {call};
                        },
                        [&](const CopyCall&) { return dropped_by(DeviceOperator::drop_copy); },
                        [&](const ExchangeCall&) { return dropped_by(DeviceOperator::drop_copy); },
                        [&](const FillCall&) { return dropped_by(DeviceOperator::drop_fill); },
                        [&](const SubmitCall&) { return mutated_op(call, site_of(call)); },
                        [&](const auto&) -> Calls { return {call}; },
                    },
                    call.call);
}

std::vector<IssuedCall> DeviceMutator::mutated_op(IssuedCall call, const std::string& site) {
  if (strikes(DeviceOperator::drop_op, site)) return {};
  if (streams_.size() > 1 && strikes(DeviceOperator::move_op, site)) {
    call.stream = other_stream(call.stream);
    return {call};
  }
  if (!device_->capturing() && free_operand(call, site)) return {};
  Submission& op = call.as<SubmitCall>()->op;
  const std::vector<OperandBytes> operands = op.operands();
  const auto written = std::find_if(operands.begin(), operands.end(), [](const OperandBytes& o) {
    return o.access == Access::out || o.access == Access::accum;
  });
  Block* other = written == operands.end() ? nullptr : other_block(op, *written);
  if (other && strikes(DeviceOperator::wrong_buffer, site)) op = rebased(op, *written, other->base);
  Submission baked = op;
  if (device_->capturing() && double_scalar(baked) && strikes(DeviceOperator::bake_scalar, site))
    op = baked;
  return {call};
}

// The memory of one of the op's operands goes back behind the op.
bool DeviceMutator::free_operand(const IssuedCall& call, const std::string& site) {
  const std::vector<OperandBytes> operands = call.as<SubmitCall>()->op.operands();
  if (operands.empty() || !strikes(DeviceOperator::free_early, site)) return false;
  Block* block = block_at(operands[static_cast<std::size_t>(fault_->index) % operands.size()].base);
  if (!block) return false;
  device_->perform(call);
  device_->release(block->base, block->pinned);
  block->freed_early = true;
  return true;
}

bool DeviceMutator::synchronizes(int stream, int event) {
  if (harness_looks()) return true;
  if (stream < 0 && !recorded_.contains(event)) return true;
  const int of = stream >= 0 ? stream : recorded_[event];
  const std::string site = "host/" + std::string(stream >= 0 ? "stream-" : "event-of-") +
                           at(streams_, of) + "/" + where(device_->place);
  return !strikes(DeviceOperator::drop_sync, site);
}

// ---- Graphs -------------------------------------------------------------------------------------

int DeviceMutator::launches(int stream, int graph, const Ledger& ledger,
                            const StepLocation& place) {
  if (ledger.entries().empty()) return 1;
  const IssuedCall& first = ledger.entries().front();
  const auto* first_op = first.as<SubmitCall>();
  const std::string site = at(streams_, stream) + "/" + where(first.place) + "/" +
                           (first_op ? first_op->op.type().name : "graph");
  if (strikes(DeviceOperator::replay_none, site)) return 0;
  if (strikes(DeviceOperator::replay_twice, site)) return 2;
  if (launched_[graph]++ == 0) return 1;
  last_moves_[graph] = {site, at(sites_, DeviceOperator::move_address)[site]};
  if (strikes(DeviceOperator::move_address, site)) move_block(stream, ledger);
  return 1;
}

std::set<std::pair<std::string, std::int64_t>> DeviceMutator::last_launches() const {
  std::set<std::pair<std::string, std::int64_t>> last;
  for (const auto& [graph, launch] : last_moves_) last.insert(launch);
  return last;
}

// One of the buffers that the graph writes, if there is one, is copied to new memory. From here on
// all calls use that.
void DeviceMutator::move_block(int stream, const Ledger& ledger) {
  std::vector<Block*> candidates;
  for (const IssuedCall& entry : ledger.entries()) {
    const auto* submitted = entry.as<SubmitCall>();
    if (!submitted) continue;
    for (const OperandBytes& operand : submitted->op.operands()) {
      Block* block = block_at(operand.base);
      if (block && !block->moved_to && !block->pinned) candidates.push_back(block);
    }
  }
  if (candidates.empty()) return;
  Block& block = *candidates[static_cast<std::size_t>(fault_->index) % candidates.size()];
  busy_ = true;
  auto* to = static_cast<std::byte*>(device_->allocate(block.bytes, false));
  const CopyCall copy{to, block.base, block.bytes, CopyKind::device_to_device};
  device_->perform({copy, stream, device_->place});
  busy_ = false;
  block.moved_to = to;
  moved_any_ = true;
}

IssuedCall DeviceMutator::moved(const IssuedCall& asked) {
  IssuedCall call = asked;
  const auto there = [this](const void* address) -> void* {
    const Block* block = block_at(address);
    if (!block || !block->moved_to) return const_cast<void*>(address);
    return block->moved_to + (static_cast<const std::byte*>(address) - block->base);
  };
  if (!moved_any_) return call;
  std::visit(Overloaded{
                 [&](CopyCall& c) { c.to = there(c.to), c.from = there(c.from); },
                 [&](ExchangeCall& c) { c.to = there(c.to), c.from = there(c.from); },
                 [&](FillCall& c) { c.to = there(c.to); },
                 [&](SubmitCall& c) {
                   for (const OperandBytes& operand : c.op.operands()) {
                     if (there(operand.base) != operand.base)
                       c.op = rebased(c.op, operand, there(operand.base));
                   }
                 },
                 [](auto&) {},
             },
             call.call);
  return call;
}

// ---- Memory -------------------------------------------------------------------------------------

DeviceMutator::Block* DeviceMutator::block_at(const void* address) {
  const auto* byte = static_cast<const std::byte*>(address);
  const auto behind = by_address_.upper_bound(byte);
  if (behind == by_address_.begin()) return nullptr;
  Block& block = *std::prev(behind)->second;
  return byte < block.base + block.bytes ? &block : nullptr;
}

// The block allocated after the operand's, round and round, that has room and that the op does not
// use.
DeviceMutator::Block* DeviceMutator::other_block(const Submission& op,
                                                 const OperandBytes& operand) {
  std::set<const Block*> used;
  for (const OperandBytes& one : op.operands()) used.insert(block_at(one.base));
  const Block* own = block_at(operand.base);
  if (own == nullptr) return nullptr;
  const auto start = by_address_.at(own->base);
  const auto next = [this](auto block) {
    return ++block == blocks_.end() ? blocks_.begin() : block;
  };
  for (auto block = next(start); block != start; block = next(block)) {
    const bool free = !block->pinned && !block->freed_early && !used.contains(&*block);
    if (free && block->bytes >= span_of(operand)) return &*block;
  }
  return nullptr;
}

void* DeviceMutator::shared_memory(std::size_t bytes, bool pinned) {
  if (pinned || busy_ || bytes == 0) return nullptr;
  const auto older = std::find_if(blocks_.rbegin(), blocks_.rend(), [bytes](const Block& block) {
    return !block.pinned && !block.freed_early && block.bytes >= bytes;
  });
  if (older == blocks_.rend() || !strikes(DeviceOperator::alias_buffers, "buffer")) return nullptr;
  ++older->more_owners;
  return older->base;
}

void DeviceMutator::allocated(void* memory, std::size_t bytes, bool pinned) {
  if (busy_) return;
  auto* const base = static_cast<std::byte*>(memory);
  forget(base);  // Freed early, used again.
  blocks_.push_back({.base = base, .bytes = bytes, .pinned = pinned});
  by_address_[base] = std::prev(blocks_.end());
}

void DeviceMutator::forget(const std::byte* base) {
  const auto found = by_address_.find(base);
  if (found == by_address_.end()) return;
  blocks_.erase(found->second);
  by_address_.erase(found);
}

bool DeviceMutator::releases(void* memory) {
  const auto found = by_address_.find(static_cast<std::byte*>(memory));
  if (found == by_address_.end()) return true;
  const auto block = found->second;
  if (block->more_owners > 0) {
    --block->more_owners;
    return false;
  }
  const bool gone = block->freed_early;
  std::byte* also = block->moved_to;
  if (!(fault_ && fault_->op == DeviceOperator::free_early)) forget(block->base);
  if (also) device_->release(also, false);
  return !gone;
}

}  // namespace lockstep
