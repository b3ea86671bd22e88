#include "engine/data/loader.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/core/fault.h"
#include "kernels/core/require.h"

namespace lockstep {
namespace {

// The integers of a document table in memory: lengths, numbers, count.
std::int64_t table_size(std::int64_t capacity) { return 2 * capacity + 1; }

DocumentTable table_in(std::int32_t* base, std::int64_t capacity) {
  return {tensor(base, 1, capacity), tensor(base + capacity, 1, capacity), tensor(base + 2 * capacity, 1, 1)};
}

void write_table(std::int32_t* base, std::int64_t capacity, const HostPack& pack) {
  std::fill(base, base + table_size(capacity), 0);
  const std::int64_t slots = std::min<std::int64_t>(capacity, static_cast<std::int64_t>(pack.lengths.size()));
  std::copy_n(pack.lengths.begin(), slots, base);
  std::copy_n(pack.numbers.begin(), slots, base + capacity);
  base[2 * capacity] = static_cast<std::int32_t>(slots);
}

}  // namespace

Loader::Loader(Device& device, const PackShape& shape, std::int64_t capacity, int microbatches, bool poisons_staging)
    : device_(device),
      shape_(shape),
      capacity_(capacity),
      poisons_staging_(poisons_staging),
      stream_(device, "loader"),
      pool_(device),
      training_state_(pool_.make<StepState>(1, 1)),
      evaluation_state_(pool_.make<StepState>(1, 1)),
      state_staging_(device, sizeof(StepState)),
      state_loaded_(device, "state loaded"),
      state_consumed_(device, "state consumed") {
  const std::int64_t size = 2 * shape.rows + table_size(capacity);
  for (int m = 0; m < microbatches; ++m) {
    auto entry = std::make_unique<Entry>();
    const Tensor<std::int32_t> block = pool_.make<std::int32_t>(1, size);
    const DocumentTable table = table_in(block.data + 2 * shape.rows, capacity);
    entry->inputs = {block.columns(0, shape.rows), block.columns(shape.rows, shape.rows), table.lengths, table.numbers,
                     table.count};
    entry->staging = std::make_unique<PinnedBuffer>(device, static_cast<std::size_t>(size) * sizeof(std::int32_t));
    entry->loaded = std::make_unique<Event>(device, "loaded");
    entry->consumed = std::make_unique<Event>(device, "consumed");
    entries_.push_back(std::move(entry));
  }
}

Loader::~Loader() {
  try {
    stream_.synchronize();
  } catch (...) {  // What failed has been said by another call.
  }
}

void Loader::grow_overflow(Entry& entry, std::int64_t slots, const Stream& compute) {
  // As large as any before: the slot's metadata may have been made for that one, and reads as many entries.
  std::int64_t capacity = 1;
  if (!fault("overflow-table-of-its-own-size"))
    for (const auto& other : entries_) capacity = std::max<std::int64_t>(capacity, other->overflow.lengths.cols);
  while (capacity < slots) capacity *= 2;
  if (entry.overflow_memory && capacity == entry.overflow.lengths.cols) return;
  compute.synchronize();  // Nothing may still read the old table.
  stream_.synchronize();
  const std::size_t bytes = static_cast<std::size_t>(table_size(capacity)) * sizeof(std::int32_t);
  entry.overflow_memory = std::make_unique<DeviceBuffer>(device_, bytes);
  entry.overflow_staging = std::make_unique<PinnedBuffer>(device_, bytes);
  entry.overflow = table_in(static_cast<std::int32_t*>(entry.overflow_memory->data()), capacity);
}

void Loader::begin_staging(const PinnedBuffer& staging) {
  device_.host_writes(staging.data(), staging.bytes());
  if (!poisons_staging_) return;
  run(HostQueue{}, poison(staging.data(), static_cast<std::int64_t>(staging.bytes())));
  bytes_poisoned_ += static_cast<std::int64_t>(staging.bytes());
}

void Loader::load(int microbatch, const HostPack& pack, const Stream& compute) {
  Entry& e = entry(microbatch);
  const std::int64_t slots = static_cast<std::int64_t>(pack.lengths.size());
  if (slots > capacity_) grow_overflow(e, slots, compute);
  // The copy before read this staging memory.
  e.loaded->synchronize();
  std::int32_t* staged = static_cast<std::int32_t*>(e.staging->data());
  begin_staging(*e.staging);
  std::copy(pack.tokens.begin(), pack.tokens.end(), staged);
  const bool first = device_.place.step == 0;
  if (!fault("targets-not-refreshed") || first) {
    std::copy(pack.targets.begin(), pack.targets.end(), staged + shape_.rows);
  }
  if (!fault("document-table-not-refreshed") || first) write_table(staged + 2 * shape_.rows, capacity_, pack);
  stream_.wait(*e.consumed);
  stream_.copy(e.inputs.tokens.data, staged, e.staging->bytes(), CopyKind::host_to_device);
  if (slots > capacity_) {
    std::int32_t* overflow = static_cast<std::int32_t*>(e.overflow_staging->data());
    begin_staging(*e.overflow_staging);
    write_table(overflow, e.overflow.lengths.cols, pack);
    stream_.copy(e.overflow.lengths.data, overflow, e.overflow_staging->bytes(), CopyKind::host_to_device);
  }
  stream_.record(*e.loaded);
}

void Loader::load_state(const StepState& state, bool training) {
  state_loaded_.synchronize();
  begin_staging(state_staging_);
  const std::size_t first = fault("seed-staged-once") && state_loads_ > 0 ? offsetof(StepState, step) : 0;
  std::memcpy(static_cast<std::byte*>(state_staging_.data()) + first,
              reinterpret_cast<const std::byte*>(&state) + first, sizeof(state) - first);
  ++state_loads_;
  stream_.wait(state_consumed_);
  stream_.copy(this->state(training).data, state_staging_.data(), sizeof(state), CopyKind::host_to_device);
  stream_.record(state_loaded_);
}

void Loader::wait_for(int microbatch, const Stream& compute) const {
  const int awaited = faulty("wait-for-the-first-microbatch-alone", microbatch, 0);
  compute.wait(*entry(awaited).loaded);
}
void Loader::wait_for_state(const Stream& compute) const { compute.wait(state_loaded_); }
void Loader::consumed(int microbatch, const Stream& compute) const { compute.record(*entry(microbatch).consumed); }
void Loader::state_consumed(const Stream& compute) const { compute.record(state_consumed_); }

DocumentTable Loader::table(int microbatch, bool overflow) const {
  const Entry& e = entry(microbatch);
  if (overflow) return e.overflow;
  return {e.inputs.lengths, e.inputs.numbers, e.inputs.count};
}

}  // namespace lockstep
