#include "engine/fsdp/gradient_buffers.h"

#include <algorithm>

#include "kernels/fault.h"
#include "kernels/optimizer.h"
#include "kernels/require.h"

namespace lockstep {

GradientBuffers::GradientBuffers(const Stream& compute, Communicator& communicator, const Scenario::Fsdp& fsdp,
                                 const ShardLayout& layout, Parameters& parameters)
    : compute_(compute),
      communicator_(communicator),
      layout_(layout),
      parameters_(parameters),
      strategy_(fsdp.strategy),
      library_sums_(fsdp.reduction == Reduction::nccl),
      plan_(plan_gradients(layout, fsdp)),
      pool_(compute.device()),
      stream_(compute.device(), "reduce"),
      written_(compute.device()),
      reduced_(compute.device()) {
  std::int64_t largest = 0;
  for (const Bucket& bucket : layout.buckets) largest = std::max(largest, layout.full(bucket));
  received_ = pool_.make<float>(1, largest);
  for (const std::int64_t bytes : plan_.slots) {
    slots_.push_back(std::make_unique<Slot>(compute.device()));
    slots_.back()->memory = pool_.make<float>(1, bytes / static_cast<std::int64_t>(sizeof(float))).data;
  }
  for (int unit = 0; unit < static_cast<int>(layout.units.size()); ++unit) {
    const std::vector<int>& choices = plan_.choices[static_cast<std::size_t>(unit)];
    if (!choices.empty()) place(unit, *slots_[static_cast<std::size_t>(choices[0])]);
  }
}

GradientBuffers::~GradientBuffers() {
  try {
    stream_.synchronize();
  } catch (...) {  // What failed has been said by another call.
  }
}

void GradientBuffers::initialize() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    compute_.fill(slots_[i]->memory, 0, static_cast<std::size_t>(plan_.slots[i]));
  }
}

void GradientBuffers::place(int unit, const Slot& slot) {
  const UnitMemory memory = memory_of_gradients(layout_, unit);
  const std::vector<int>& buckets = layout_.units[static_cast<std::size_t>(unit)].buckets;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    parameters_.place_gradients(buckets[i], slot.memory + memory.offsets[i] / static_cast<std::int64_t>(sizeof(float)));
  }
}

// ---- Slots ----------------------------------------------------------------------------------------------------------

// A free one, or the one that has been reducing for longest.
GradientBuffers::Slot& GradientBuffers::slot_for(int unit) {
  const std::vector<int>& choices = plan_.choices[static_cast<std::size_t>(unit)];
  const auto is_choice = [&](const Slot* slot) {
    return std::any_of(choices.begin(), choices.end(),
                       [&](int c) { return slots_[static_cast<std::size_t>(c)].get() == slot; });
  };
  for (const auto& slot : slots_) {
    if (slot->state == State::free && is_choice(slot.get())) return *slot;
  }
  const auto oldest = std::find_if(in_flight_.begin(), in_flight_.end(), is_choice);
  require(oldest != in_flight_.end(), "the slot of a gradient is free or reducing when its turn comes");
  Slot& slot = **oldest;
  if (!fault("slot-reused-while-reducing")) compute_.wait(slot.reduced);
  in_flight_.erase(oldest);
  slot.state = State::free;
  return slot;
}

void GradientBuffers::enter(int unit) {
  if (!at_once()) return;
  Slot& slot = slot_for(unit);
  slot.state = State::writing;
  slot.unit = unit;
  if (plan_.choices[static_cast<std::size_t>(unit)].size() > 1) place(unit, slot);
}

void GradientBuffers::leave(int unit, bool last) {
  if (!at_once() && !last && !fault("reduced-every-microbatch")) return;
  const Place place = compute_.device().place;
  compute_.device().place.layer = -1;
  compute_.device().place.part = "reduce";
  if (at_once()) {
    const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const auto& slot) {
      return slot->state == State::writing && slot->unit == unit;
    });
    require(found != slots_.end(), "what is reduced was written");
    const bool dropped = fault("reduce-dropped") && unit + 2 == static_cast<int>(layout_.units.size());
    if (!dropped) reduce_microbatch(unit, **found);
    if (fault("reduce-runs-twice")) reduce_microbatch(unit, **found);
    (*found)->state = State::reducing;
    in_flight_.push_back(found->get());
  } else {
    reduce_step(unit);
  }
  compute_.device().place = place;
}

void GradientBuffers::finish(bool complete) {
  if (!at_once() && complete) compute_.wait(reduced_);
  for (Slot* slot : in_flight_) {
    compute_.wait(slot->reduced);
    slot->state = State::free;
  }
  in_flight_.clear();
}

// ---- Reductions -----------------------------------------------------------------------------------------------------

// total = add(total, what rank r sent), ranks ascending.
void GradientBuffers::add_up(const Bucket& bucket, Tensor<float> total, int first_rank) const {
  for (int r = first_rank; r < communicator_.size(); ++r) {
    const int from = fault("folded-in-another-order") ? communicator_.size() - 1 - r + first_rank : r;
    stream_.submit(AccumulateGradient{.g = received_.columns(bucket.shard * from, bucket.shard), .acc = total});
  }
}

// acc = acc + what every rank has at `from`: rank after rank, or the library's sum.
void GradientBuffers::reduce_microbatch(int unit, const Slot& slot) {
  const UnitMemory place = memory_of_gradients(layout_, unit);
  const std::vector<int>& buckets = layout_.units[static_cast<std::size_t>(unit)].buckets;
  compute_.record(slot.written);
  if (!fault("reduce-ignores-compute")) stream_.wait(slot.written);
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const Bucket& b = bucket(buckets[i]);
    const float* const from = slot.memory + place.offsets[i] / static_cast<std::int64_t>(sizeof(float));
    const auto bytes = static_cast<std::size_t>(b.shard) * sizeof(float);
    const CollectiveName name{"reduce", buckets[i]};
    const Tensor<float> acc = memory(buckets[i]).gradient;
    if (library_sums_) {
      communicator_.reduce_scatter(stream_, name, received_.data, from, bytes);
      stream_.submit(AccumulateGradient{.g = received_.columns(0, b.shard), .acc = acc});
    } else {
      communicator_.all_to_all(stream_, name, received_.data, from, bytes);
      add_up(b, acc, 0);
    }
  }
  stream_.record(slot.reduced);
}

void GradientBuffers::reduce_step(int unit) {
  compute_.record(written_);
  if (!fault("reduce-ignores-compute")) stream_.wait(written_);
  for (const int index : layout_.units[static_cast<std::size_t>(unit)].buckets) {
    library_sums_ ? total_by_library(index) : total_in_order(index);
  }
  stream_.record(reduced_);
}

void GradientBuffers::total_in_order(int index) {
  const Bucket& b = bucket(index);
  const Tensor<float> total = memory(index).gradient, all = memory(index).accumulator;
  const auto bytes = static_cast<std::size_t>(b.shard) * sizeof(float);
  communicator_.all_to_all(stream_, {"reduce", index}, received_.data, all.data, bytes);
  stream_.copy(total.data, received_.data, bytes, CopyKind::device_to_device);
  add_up(b, total, 1);
  if (strategy_ == Sharding::no_shard) {
    communicator_.all_gather(stream_, {"total", index}, all.data, total.data, bytes);
  }
}

void GradientBuffers::total_by_library(int index) {
  const Tensor<float> total = memory(index).gradient, all = memory(index).accumulator;
  if (strategy_ == Sharding::no_shard) {
    return communicator_.all_reduce(stream_, {"reduce", index}, all.data,
                                    static_cast<std::size_t>(all.size()) * sizeof(float));
  }
  const auto bytes = static_cast<std::size_t>(total.size()) * sizeof(float);
  communicator_.reduce_scatter(stream_, {"reduce", index}, received_.data, all.data, bytes);
  stream_.copy(total.data, received_.data, bytes, CopyKind::device_to_device);
}

}  // namespace lockstep
