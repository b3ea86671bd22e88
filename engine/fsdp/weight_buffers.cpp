#include "engine/fsdp/weight_buffers.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"

namespace lockstep {

WeightBuffers::WeightBuffers(const Stream& compute, const ShardCommunicators& communicators,
                             const Scenario::Fsdp& fsdp, const ShardLayout& layout,
                             Parameters& parameters)
    : compute_(compute),
      communicators_(communicators),
      layout_(layout),
      parameters_(parameters),
      strategy_(fsdp.strategy),
      prefetch_(faulty("prefetch-ignored", fsdp.prefetch, 0)),
      plan_(plan_weights(layout, fsdp)),
      pool_(compute.device(), &communicators.stage),
      stream_(compute.device(), "gather"),
      fork_(compute.device(), "weights written") {
  pool_.reserve(plan_.slots);
  for (const std::int64_t bytes : plan_.slots) {
    slots_.push_back(std::make_unique<Slot>(compute.device()));
    slots_.back()->memory = reinterpret_cast<std::byte*>(pool_.make<std::uint8_t>(1, bytes).data);
  }
  for (int unit = 0; unit < static_cast<int>(layout.units.size()); ++unit) {
    if (!choices(unit).empty()) place(unit, slot(choices(unit)[0]));
  }
}

WeightBuffers::~WeightBuffers() {
  try {
    const bool waits = faulty("weights-leave-while-they-are-gathered", true, false);
    if (waits) stream_.synchronize();
  } catch (...) {  // Another call has reported the failure.
  }
}

bool WeightBuffers::is_resident(int unit) const {
  const bool blocks = at(layout_.units, unit).kind == Unit::Kind::blocks;
  return strategy_ != Sharding::optim_grads_params || !blocks;
}

void WeightBuffers::place(int unit, const Slot& slot) {
  const UnitMemory memory = memory_of_weights(layout_, unit);
  const std::vector<int>& buckets = at(layout_.units, unit).buckets;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    parameters_.place_weights(buckets[i], slot.memory + memory.offsets[i]);
  }
}

void WeightBuffers::append_addresses(std::vector<const void*>& table) const {
  pool_.append_addresses(table);
  for (std::size_t unit = 0; unit < layout_.units.size(); ++unit) {
    if (plan_.choices[unit].size() != 1) continue;
    for (const int bucket : layout_.units[unit].buckets) {
      for (const Extent& extent : at(layout_.buckets, bucket).extents) {
        table.push_back(parameters_[extent.parameter].weight.data);
        table.push_back(parameters_[extent.parameter].copy.data);
        table.push_back(parameters_[extent.parameter].fp8.codes.data);
      }
    }
  }
}

// ---- Passes -------------------------------------------------------------------------------------

void WeightBuffers::prefetch(int units) {
  std::vector<int> first(units);
  std::iota(first.begin(), first.end(), 0);
  begin(std::move(first));
}

void WeightBuffers::begin(std::vector<int> uses) {
  uses.erase(
      std::remove_if(uses.begin(), uses.end(), [this](int unit) { return is_resident(unit); }),
      uses.end());
  uses_ = std::move(uses);
  next_ = 0;
  if (uses_.empty()) return;
  fork();  // This also orders the gathers after every earlier pass.
  for (const auto& slot : slots_) slot->read = false;
  gather_ahead(0, prefetch_);
}

void WeightBuffers::await(int unit) {
  if (strategy_ != Sharding::no_shard && is_resident(unit)) wait(*holding(unit));
}

void WeightBuffers::order_after(const Stream& stream, int unit) {
  const Slot& of_unit = *holding(unit);
  if (of_unit.state == State::gathering) stream.wait(of_unit.gathered);
}

void WeightBuffers::enter(int unit) {
  if (strategy_ == Sharding::no_shard) return;
  if (is_resident(unit)) return await(unit);
  require(next_ < uses_.size() && uses_[next_] == unit,
          "units are used in the order of the schedule");
  if (holding(unit) == nullptr) {
    require(gather(unit), "the slot of a unit is free when its turn comes");
    late_gathers_ += compute_.device().recording() < 0;
  }
  gather_ahead(next_ + 1, next_ + 1 + prefetch_);
  Slot* const slot = holding(unit);
  require(slot != nullptr, "no other unit takes the slot of one that is in use");
  wait(*slot);
}

void WeightBuffers::leave(int unit) {
  if (is_resident(unit)) return;
  Slot* const slot = holding(unit);
  require(slot != nullptr && slot->state == State::ready, "what is let go was there");
  ++next_;
  const bool last = next_ == uses_.size();
  const bool used_next = !last && uses_[next_] == unit;
  const bool keeps_its_slot = faulty("last-unit-stays-in-its-slot", used_next, used_next || last);
  if (!keeps_its_slot) {
    compute_.record(slot->released);
    slot->read = true;
    slot->state = State::free;
    slot->unit = -1;
  }
  // Prefetches as far as entering the next unit would, but earlier: before the reduction of this
  // unit, which nothing waits for yet.
  if (prefetch_ > 0) gather_ahead(next_, next_ + 1 + prefetch_);
}

void WeightBuffers::end() const {
  require(next_ == uses_.size(), "every pass has used its units");
  for (const auto& slot : slots_)
    require(slot->unit < 0 || is_resident(slot->unit), "no unit keeps its slot");
}

// Gathers go in order: if one must wait for its slot, the later ones wait too.
void WeightBuffers::gather_ahead(std::size_t first, std::size_t end) {
  for (std::size_t use = first; use < std::min(end, uses_.size()); ++use) {
    if (holding(uses_[use]) == nullptr && !gather(uses_[use])) return;
  }
}

// ---- Slots --------------------------------------------------------------------------------------

WeightBuffers::Slot* WeightBuffers::holding(int unit) {
  for (const int choice : choices(unit)) {
    if (slot(choice).unit == unit) return &slot(choice);
  }
  return nullptr;
}

// The first slot of the unit's that is free; -1 if none is.
int WeightBuffers::free_slot(int unit) {
  for (const int choice : choices(unit)) {
    const bool free = slot(choice).state == State::free;
    const bool taken = faulty("gather-takes-a-busy-slot", free, true);
    if (taken) return choice;
  }
  return -1;
}

// A gather waits for nothing but the last reader of its slot, unless a fault is planted.
void WeightBuffers::await_no_more() {
  using Call = std::function<void()>;
  const Call all_of_compute = [this] { fork(); };
  const Call awaited = faulty<Call>(
      "gather-waits-for-all-of-compute", [] {}, all_of_compute);
  awaited();
}

// Experts wait for no more than what else is gathered, unless a fault is planted.
void WeightBuffers::await_no_more(const Communicator& communicator) {
  using Call = std::function<void()>;
  const bool of_experts = &communicator == communicators_.replicas;
  const Call nothing = [] {}, all_of_compute = [this] { fork(); };
  faulty<Call>("experts-gathered-behind-all-of-compute", nothing,
               of_experts ? all_of_compute : nothing)();
}

bool WeightBuffers::gather(int unit) {
  const int index = free_slot(unit);
  if (index < 0) return false;
  await_no_more();
  Slot& to = slot(index);
  if (to.read) stream_.wait(to.released);
  // The graphs of the first steps hold the address of `to`: later, another slot is a fault.
  const int neighbour = std::min(index ^ 1, static_cast<int>(slots_.size()) - 1);
  Slot& other = compute_.device().place.step > 1 ? slot(neighbour) : to;
  place(unit, *faulty("pooled-unit-moves", &to, &other));
  exchange(unit, to, *faulty("units-swap-slots", &to, &other));
  return true;
}

// The buckets of the unit in their order, as this rank gathers them.
std::vector<WeightBuffers::Shard> WeightBuffers::shards(int unit, const Slot& to) const {
  const UnitMemory memory = memory_of_weights(layout_, unit);
  const std::vector<int>& buckets = at(layout_.units, unit).buckets;
  std::vector<Shard> all, with_rows;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const Bucket& bucket = at(layout_.buckets, buckets[i]);
    const BucketMemory& own = at(parameters_.buckets(), buckets[i]);
    const void* const copy =
        bucket.codes ? static_cast<const void*>(own.codes.data) : own.copy.data;
    const void* const from = bucket.narrow ? copy : own.weight.data;
    const std::size_t bytes = bucket.shard * bucket.element_bytes();
    all.push_back({buckets[i], to.memory + memory.offsets[i], from, bytes});
    if (!layout_.is_empty(bucket, communicators_.stage.rank())) with_rows.push_back(all.back());
  }
  // A rank whose shard is empty takes part too: the others wait for it.
  const std::vector<Shard>& called = *faulty("empty-shard-skips-its-collective", &all, &with_rows);
  return called;
}

void WeightBuffers::exchange(int unit, Slot& slot, const Slot& to) {
  Device& device = compute_.device();
  const StepLocationScope scope(device, -1, "gather");
  const std::vector<Shard> all = shards(unit, to);
  const bool second = communicators_.stage.rank() == 1;
  const bool second_captures = second && device.recording() >= 0;
  communicators_.each(layout_, all, [&](Communicator& communicator, const auto& own) {
    await_no_more(communicator);
    for (std::size_t n = 0; n < own.size(); ++n) {
      const std::size_t back = own.size() - 1 - n;  // Counted from the end, for a fault.
      const auto i = faulty("a-rank-captures-in-another-order", n, second_captures ? back : n);
      const Shard& one = own[faulty("a-rank-gathers-in-another-order", i, second ? back : i)];
      communicator.all_gather(stream_, {"gather", one.bucket}, one.to, one.from, one.bytes);
    }
  });
  stream_.record(slot.gathered);
  slot.unit = unit;
  slot.state = State::gathering;
}

void WeightBuffers::wait(Slot& slot) {
  if (slot.state == State::gathering) compute_.wait(slot.gathered);
  slot.state = State::ready;
}

// ---- Between passes -----------------------------------------------------------------------------

// Gathers run after the work that compute has done, which includes the optimizer.
void WeightBuffers::fork() {
  compute_.record(fork_);
  stream_.wait(fork_);
}

void WeightBuffers::refresh(int unit) {
  if (strategy_ == Sharding::no_shard || !is_resident(unit)) return;
  fork();
  exchange(unit, slot(choices(unit)[0]), slot(choices(unit)[0]));
}

void WeightBuffers::refresh() {
  drain();
  for (int unit = 0; unit < static_cast<int>(layout_.units.size()); ++unit) {
    Slot* const held = choices(unit).empty() || is_resident(unit) ? nullptr : holding(unit);
    if (held != nullptr) held->state = State::free, held->unit = -1;
    refresh(unit);
  }
}

void WeightBuffers::drain() {
  for (const auto& slot : slots_) {
    if (slot->state == State::gathering) wait(*slot);
  }
}

// ---- Passes in between --------------------------------------------------------------------------

// Whether the slot belongs to units that come and go.
bool WeightBuffers::is_released(int slot) const {
  for (int unit = 0; unit < static_cast<int>(layout_.units.size()); ++unit) {
    if (std::ranges::find(choices(unit), slot) != choices(unit).end()) return !is_resident(unit);
  }
  return false;
}

// The buckets of the unit in the slot; what lies between them has no value.
void WeightBuffers::append_weights(const Slot& slot, std::vector<MemoryRange>& ranges) const {
  for (const Shard& one : shards(slot.unit, slot))
    ranges.push_back({one.to, static_cast<std::int64_t>(one.bytes) *
                                  layout_.ranks_of(at(layout_.buckets, one.bucket))});
}

std::vector<MemoryRange> WeightBuffers::set_aside() {
  std::vector<MemoryRange> held;
  set_aside_ = {.slots = {}, .uses = std::exchange(uses_, {}), .next = std::exchange(next_, 0)};
  for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
    Slot& slot = this->slot(i);
    if (slot.state == State::gathering && is_released(i)) wait(slot);
    set_aside_.slots.push_back({slot.state, slot.unit, slot.read});
    if (!is_released(i)) continue;
    if (slot.unit >= 0) append_weights(slot, held);
    slot.state = State::free;
    slot.unit = -1;
  }
  return held;
}

void WeightBuffers::put_back() {
  uses_ = std::move(set_aside_.uses);
  next_ = set_aside_.next;
  for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
    if (!is_released(i)) continue;
    const Held& held = at(set_aside_.slots, i);
    slot(i).state = held.state;
    slot(i).unit = held.unit;
    slot(i).read = held.read;
  }
  fork();  // The next gather comes behind what compute did meanwhile.
}

std::int64_t WeightBuffers::most_set_aside() const {
  std::int64_t bytes = 0;
  for (int i = 0; i < static_cast<int>(slots_.size()); ++i)
    bytes += is_released(i) ? at(plan_.slots, i) : 0;
  return bytes;
}

}  // namespace lockstep
