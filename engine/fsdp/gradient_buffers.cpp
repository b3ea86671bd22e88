#include "engine/fsdp/gradient_buffers.h"

#include <algorithm>
#include <utility>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "kernels/ops/accumulate.h"

namespace lockstep {
namespace {

// Element counts of every bucket, and of the buckets that are reduced together: all buckets of an
// FSDP unit, and those of the final norm and the head.
std::int64_t room_to_receive(const ShardLayout& layout) {
  std::int64_t most = 0;
  for (const Unit& unit : layout.units) {
    std::int64_t all = 0;
    for (std::size_t i = 0; i < unit.buckets.size(); ++i) {
      const std::int64_t one = layout.gradients(at(layout.buckets, unit.buckets[i]));
      const bool joins =
          unit.kind == Unit::Kind::blocks || (unit.kind == Unit::Kind::head && i == 1);
      all = joins ? all + one : std::max(all, one);
    }
    most = std::max(most, all);
  }
  return most;
}

// The library would sum in another order if the memory were registered with it.
Communicator* exchanged_in(Communicator& communicator, const Scenario::Fsdp& fsdp) {
  return fsdp.reduction == Reduction::nccl ? nullptr : &communicator;
}

std::size_t bytes_of(const Tensor<float>& x) {
  return static_cast<std::size_t>(x.size()) * sizeof(float);
}

}  // namespace

GradientBuffers::GradientBuffers(const Stream& compute, const Stream& gather,
                                 const ShardCommunicators& communicators,
                                 const Scenario::Fsdp& fsdp, const ShardLayout& layout,
                                 Parameters& parameters)
    : compute_(compute),
      gather_(gather),
      communicators_(communicators),
      layout_(layout),
      parameters_(parameters),
      strategy_(fsdp.strategy),
      library_sums_(fsdp.reduction == Reduction::nccl),
      plan_(plan_gradients(layout, fsdp)),
      pool_(compute.device(), exchanged_in(communicators.stage, fsdp)),
      stream_(compute.device(), "reduce"),
      written_(compute.device(), "gradients written"),
      summed_(compute.device(), "totals summed"),
      gathered_(compute.device(), "totals gathered") {
  const std::size_t apart = strategy_ == Sharding::optim ? layout.units.size() : 1;
  for (std::size_t i = 0; i < apart; ++i) reduced_.emplace_back(compute.device(), "unit reduced");
  const std::int64_t received = room_to_receive(layout);
  std::vector<std::int64_t> all = plan_.slots;
  all.push_back(received * static_cast<std::int64_t>(sizeof(float)));
  pool_.reserve(all);
  received_ = pool_.make<float>(1, received);
  for (const std::int64_t bytes : plan_.slots) {
    slots_.push_back(std::make_unique<Slot>(compute.device()));
    slots_.back()->memory =
        pool_.make<float>(1, bytes / static_cast<std::int64_t>(sizeof(float))).data;
  }
  for (int unit = 0; unit < static_cast<int>(layout.units.size()); ++unit) {
    const std::vector<int>& choices = at(plan_.choices, unit);
    if (!choices.empty()) place(unit, *at(slots_, choices[0]));
  }
}

GradientBuffers::~GradientBuffers() {
  try {
    stream_.synchronize();
    if (strategy_ == Sharding::no_shard) gather_.synchronize();  // Totals come on it.
  } catch (...) {  // Another call has reported the failure.
  }
}

void GradientBuffers::initialize() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    compute_.fill(slots_[i]->memory, 0, plan_.slots[i]);
  }
}

void GradientBuffers::place(int unit, const Slot& slot) {
  const UnitMemory memory = memory_of_gradients(layout_, unit);
  const std::vector<int>& buckets = at(layout_.units, unit).buckets;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    parameters_.place_gradients(
        buckets[i], slot.memory + memory.offsets[i] / static_cast<std::int64_t>(sizeof(float)));
  }
}

// ---- Slots --------------------------------------------------------------------------------------

// Returns a free slot, or the one that has been reducing for longest.
GradientBuffers::Slot& GradientBuffers::slot_for(int unit) {
  const std::vector<int>& choices = at(plan_.choices, unit);
  const auto is_choice = [&](const Slot* slot) {
    return std::any_of(choices.begin(), choices.end(),
                       [&](int c) { return at(slots_, c).get() == slot; });
  };
  for (const auto& slot : slots_) {
    if (slot->state == State::free && is_choice(slot.get())) return *slot;
  }
  const auto oldest = std::find_if(in_flight_.begin(), in_flight_.end(), is_choice);
  require(oldest != in_flight_.end(),
          "the slot of a gradient is free or reducing when its turn comes");
  Slot& slot = **oldest;
  compute_.wait(*faulty("slot-reused-while-reducing", &slot.reduced, &slot.written));
  in_flight_.erase(oldest);
  slot.state = State::free;
  return slot;
}

void GradientBuffers::enter(int unit) {
  if (!at_once()) return;
  Slot& slot = slot_for(unit);
  slot.state = State::writing;
  slot.unit = unit;
  if (at(plan_.choices, unit).size() > 1) place(unit, slot);
}

void GradientBuffers::leave(int unit, bool last) {
  const bool reduces = faulty("reduced-every-microbatch", at_once() || last, true);
  if (!reduces) return;
  const StepLocationScope scope(compute_.device(), -1, "reduce");
  if (at_once()) {
    const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const auto& slot) {
      return slot->state == State::writing && slot->unit == unit;
    });
    require(found != slots_.end(), "what is reduced was written");
    reduce_microbatch(unit, **found);
    (*found)->state = State::reducing;
    in_flight_.push_back(found->get());
  } else {
    reduce_step(unit);
  }
}

void GradientBuffers::finish() {
  if (!reducing_.empty()) {
    compute_.wait(reduced(std::exchange(reducing_, {}).back()));
    if (strategy_ == Sharding::no_shard && !library_sums_) compute_.wait(gathered_);
  }
  while (!in_flight_.empty()) let_go(*in_flight_.front());
}

void GradientBuffers::wait_for(int unit) {
  if (strategy_ == Sharding::no_shard) return finish();
  if (strategy_ == Sharding::optim) {
    const auto found = std::ranges::find(reducing_, unit);
    if (found == reducing_.end()) return;
    compute_.wait(reduced(unit));
    reducing_.erase(reducing_.begin(), found + 1);
    return;
  }
  const auto of_unit = [=](const Slot* slot) { return slot->unit == unit; };
  for (;;) {
    const auto found = std::find_if(in_flight_.begin(), in_flight_.end(), of_unit);
    if (found == in_flight_.end()) return;
    let_go(**found);
  }
}

void GradientBuffers::let_go(Slot& slot) {
  compute_.wait(*faulty("sums-read-while-reducing", &slot.reduced, &slot.written));
  slot.state = State::free;
  std::erase(in_flight_, &slot);
}

// ---- Reductions ---------------------------------------------------------------------------------

// Reduces the buckets of a unit in order, as many at a time as there is room for. They lie in a
// slot or in the accumulators.
std::vector<std::vector<GradientBuffers::Arrival>> GradientBuffers::arrivals(
    int unit, const Slot* slot) const {
  const UnitMemory place = memory_of_gradients(layout_, unit);
  const std::vector<int>& buckets = at(layout_.units, unit).buckets;
  std::vector<std::vector<Arrival>> batches;
  std::int64_t end = received_.cols;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const std::int64_t elements = layout_.gradients(bucket(buckets[i]));
    if (end + elements > received_.cols) {
      batches.emplace_back();
      end = 0;
    }
    const float* const from =
        slot == nullptr
            ? memory(buckets[i]).accumulator.data
            : slot->memory + place.offsets[i] / static_cast<std::int64_t>(sizeof(float));
    batches.back().push_back({buckets[i], from, received_.columns(end, elements)});
    end += faulty("buckets-received-in-one-place", elements, 0);
  }
  return batches;
}

// Receives every rank's part of this rank's shards, or the library's sum of them.
void GradientBuffers::exchange(const std::vector<Arrival>& arrivals) {
  const std::vector<Arrival> none;
  const bool is_second = communicators_.stage.rank() == 1;
  const auto* const wrong = stream_.device().recording() >= 0 && is_second ? &none : &arrivals;
  const auto& called = *faulty("a-rank-captures-a-collective-less", &arrivals, wrong);
  communicators_.each(layout_, called, [&](Communicator& communicator, const auto& own) {
    for (const Arrival& one : own) {
      const CollectiveName name{"reduce", one.bucket};
      const auto bytes = static_cast<std::size_t>(bucket(one.bucket).shard) * sizeof(float);
      library_sums_ ? communicator.reduce_scatter(stream_, name, one.received.data, one.from, bytes)
                    : exchange_sources(communicator, one);
    }
  });
}

// The gradients of each source lie one behind the other, and are exchanged so.
void GradientBuffers::exchange_sources(Communicator& communicator, const Arrival& arrival) {
  const Bucket& of = bucket(arrival.bucket);
  const auto bytes = static_cast<std::size_t>(of.shard) * sizeof(float);
  for (std::int64_t source = 0; source < of.sources; ++source) {
    const std::int64_t first = source * layout_.full(of);
    communicator.all_to_all(stream_, {"reduce", arrival.bucket}, arrival.received.data + first,
                            arrival.from + first, bytes);
  }
}

// total = add(total, what rank r sent), ranks ascending from `first_rank`. A ring would start
// elsewhere and go round. Of experts that lie on several ranks, each of the ranks that sent has the
// parts of several ranks, which follow one another.
void GradientBuffers::add_up(const Arrival& arrival, Tensor<float> total, int first_rank) const {
  const Bucket& of = bucket(arrival.bucket);
  if (of.sources > 1) return add_up_sources(arrival, total, first_rank);
  const int end = communicators_.stage.size();
  const auto add = [&](int from, int count) {
    const float* const data = arrival.received.data + total.cols * from;
    if (count > 0)
      stream_.submit(AccumulateGradient{.g = {data, count, total.cols, total.cols}, .acc = total});
  };
  const int second_rank = std::min(first_rank + 1, end);
  const int start = faulty("folded-in-another-order", first_rank, second_rank);
  add(start, end - start);
  add(first_rank, start - first_rank);
}

void GradientBuffers::add_up_sources(const Arrival& arrival, Tensor<float> total,
                                     int first_rank) const {
  const Bucket& of = bucket(arrival.bucket);
  const std::int64_t replicas = layout_.ranks_of(of), full = layout_.full(of);
  for (std::int64_t replica = 0; replica < replicas; ++replica) {
    const std::int64_t first = replica == 0 ? first_rank : 0;
    const std::int64_t wrong = replicas - 1 - replica;
    const std::int64_t from = faulty("experts-gradients-of-the-wrong-replica", replica, wrong);
    const float* const data = arrival.received.data + first * full + from * of.shard;
    stream_.submit(
        AccumulateGradient{.g = {data, of.sources - first, total.cols, full}, .acc = total});
  }
}

// acc = acc + every rank's part at `from`, rank after rank, or the library's sum.
void GradientBuffers::reduce_microbatch(int unit, const Slot& slot) {
  compute_.record(slot.written);
  stream_.wait(slot.written);
  const std::vector<std::vector<Arrival>> all = arrivals(unit, &slot), none;
  const bool is_last_but_one = unit + 2 == static_cast<int>(layout_.units.size());
  const auto& batches = *faulty("reduce-dropped", &all, is_last_but_one ? &none : &all);
  for (const std::vector<Arrival>& batch : batches) {
    exchange(batch);
    for (const Arrival& one : batch) {
      const Tensor<float> acc = memory(one.bucket).gradient;
      if (library_sums_) {
        stream_.submit(AccumulateGradient{.g = one.received.columns(0, acc.cols), .acc = acc});
      } else {
        add_up(one, acc, 0);
      }
    }
  }
  stream_.record(slot.reduced);
}

void GradientBuffers::reduce_step(int unit) {
  compute_.record(written_);
  stream_.wait(written_);
  for (const std::vector<Arrival>& batch : arrivals(unit, nullptr)) {
    library_sums_ ? total_by_library(batch) : total_in_order(batch);
  }
  stream_.record(reduced(unit));
  reducing_.push_back(unit);
}

void GradientBuffers::total_in_order(const std::vector<Arrival>& arrivals) {
  exchange(arrivals);
  for (const Arrival& one : arrivals) {
    const Tensor<float> total = memory(one.bucket).gradient;
    stream_.copy(total.data, one.received.data, bytes_of(total), CopyKind::device_to_device);
    add_up(one, total, 1);
  }
  if (strategy_ == Sharding::no_shard) gather_totals(arrivals);
}

// Gathers the summed shards of every rank into every rank's accumulators: of several, the first.
void GradientBuffers::gather_totals(const std::vector<Arrival>& arrivals) {
  stream_.record(summed_);
  gather_.wait(summed_);
  communicators_.each(layout_, arrivals, [&](Communicator& communicator, const auto& own) {
    for (const Arrival& one : own) {
      const BucketMemory& of = memory(one.bucket);
      communicator.all_gather(gather_, {"total", one.bucket}, of.accumulator.data, of.gradient.data,
                              bytes_of(of.gradient));
    }
  });
  gather_.record(gathered_);
}

void GradientBuffers::total_by_library(const std::vector<Arrival>& arrivals) {
  if (strategy_ == Sharding::no_shard) {
    Communicator& communicator = communicators_.stage;
    return communicator.grouped([&] {
      for (const Arrival& one : arrivals) {
        const Tensor<float> all = memory(one.bucket).accumulator;
        communicator.all_reduce(stream_, {"reduce", one.bucket}, all.data, bytes_of(all));
      }
    });
  }
  exchange(arrivals);
  for (const Arrival& one : arrivals) {
    const Tensor<float> total = memory(one.bucket).gradient;
    stream_.copy(total.data, one.received.data, bytes_of(total), CopyKind::device_to_device);
  }
}

}  // namespace lockstep
