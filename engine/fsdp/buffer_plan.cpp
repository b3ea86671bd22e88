#include "engine/fsdp/buffer_plan.h"

#include <algorithm>
#include <map>

#include "kernels/core/at.h"
#include "kernels/core/contract.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

constexpr std::int64_t kAlignment = 256;  // The alignment of device memory, in bytes.
constexpr int kReductions = 2;  // Gradient slots: one is written while others are reduced.

template <class BytesOf>
UnitMemory memory_of(const ShardLayout& layout, int unit, BytesOf element_bytes) {
  UnitMemory memory;
  for (const int b : at(layout.units, unit).buckets) {
    const Bucket& bucket = at(layout.buckets, b);
    if (!layout.continues(b))
      memory.bytes = (memory.bytes + kAlignment - 1) / kAlignment * kAlignment;
    memory.offsets.push_back(memory.bytes);
    memory.bytes += layout.full(bucket) * static_cast<std::int64_t>(element_bytes(bucket));
  }
  return memory;
}

// The parameters of each unit of the largest class.
std::int64_t pooled_parameters(const ShardLayout& layout) {
  std::map<std::int64_t, int> members;
  std::int64_t best = -1;
  for (const Unit& unit : layout.units) members[unit.parameters] += unit.kind == Unit::Kind::blocks;
  for (const Unit& unit : layout.units) {
    if (unit.kind != Unit::Kind::blocks) continue;
    if (best < 0 || members[unit.parameters] > members[best]) best = unit.parameters;
  }
  return best;
}

class Planner {
 public:
  using MemoryOf = UnitMemory (*)(const ShardLayout&, int);
  // `live` is the number of units of one size that are in use at once.
  Planner(const ShardLayout& layout, MemoryOf memory_of, std::int64_t live)
      : layout_(layout), memory_of_(memory_of), live_(live) {
    plan_.choices.resize(layout.units.size());
  }
  bool is_blocks(int unit) const { return at(layout_.units, unit).kind == Unit::Kind::blocks; }
  int units() const { return static_cast<int>(layout_.units.size()); }

  void stay(int unit) { let_use(unit, add_slot()); }
  void take_turns(const Scenario::Fsdp& fsdp) {
    const std::int64_t pooled = fsdp.double_buffer ? pooled_parameters(layout_) : -1;
    std::vector<int> alternating;
    for (int u = 0; u < units(); ++u) {
      if (!is_blocks(u)) {
        stay(u);
      } else if (at(layout_.units, u).parameters == pooled) {
        alternating.push_back(u);
      } else if (fsdp.double_buffer && fsdp.persist_buf_on_alloc_fail) {
        stay(u);
        plan_.persistent.push_back(u);
      } else {
        sharing_[memory_of_(layout_, u).bytes].push_back(u);
      }
    }
    alternate(alternating);
    share();
  }
  BufferPlan plan() && { return std::move(plan_); }

 private:
  int add_slot() {
    plan_.slots.push_back(0);
    return static_cast<int>(plan_.slots.size()) - 1;
  }
  void let_use(int unit, int slot) {
    std::int64_t& bytes = at(plan_.slots, slot);
    bytes = std::max(bytes, memory_of_(layout_, unit).bytes);
    at(plan_.choices, unit).push_back(slot);
  }
  // The k-th unit of the class takes slot k mod 2, so neighbours never share a slot.
  void alternate(const std::vector<int>& units) {
    std::vector<int> slots;
    for (std::size_t k = 0; k < units.size(); ++k) {
      if (k < 2) slots.push_back(add_slot());
      let_use(units[k], slots[k % 2]);
    }
  }
  void share() {
    for (const auto& [bytes, units] : sharing_) {
      for (std::int64_t i = 0; i < std::min<std::int64_t>(live_, std::ssize(units)); ++i) {
        const int slot = add_slot();
        for (const int unit : units) let_use(unit, slot);
      }
    }
  }

  const ShardLayout& layout_;
  MemoryOf memory_of_;
  std::int64_t live_;
  BufferPlan plan_;
  std::map<std::int64_t, std::vector<int>> sharing_;  // Slots by size in bytes.
};

}  // namespace

UnitMemory memory_of_weights(const ShardLayout& layout, int unit) {
  return memory_of(layout, unit, [](const Bucket& bucket) { return bucket.element_bytes(); });
}
UnitMemory memory_of_gradients(const ShardLayout& layout, int unit) {
  return memory_of(layout, unit, [](const Bucket& bucket) {
    return static_cast<std::int64_t>(sizeof(float)) * bucket.sources;
  });
}

BufferPlan plan_weights(const ShardLayout& layout, const Scenario::Fsdp& fsdp) {
  Planner planner(layout, memory_of_weights, 1 + fsdp.prefetch);
  if (fsdp.strategy == Sharding::optim_grads_params) {
    planner.take_turns(fsdp);
  } else if (fsdp.strategy != Sharding::no_shard) {
    for (int u = 0; u < planner.units(); ++u) planner.stay(u);
  }
  return std::move(planner).plan();
}

BufferPlan plan_gradients(const ShardLayout& layout, const Scenario::Fsdp& fsdp) {
  Planner planner(layout, memory_of_gradients, kReductions);
  const bool reduced_at_once =
      fsdp.strategy == Sharding::optim_grads || fsdp.strategy == Sharding::optim_grads_params;
  if (reduced_at_once) planner.take_turns(fsdp);
  return std::move(planner).plan();
}

}  // namespace lockstep
