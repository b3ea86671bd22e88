#include "engine/data/loader.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>

#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "kernels/diagnostics/poison.h"
#include "kernels/ops/pack_metadata.h"

namespace lockstep {
namespace {

// The integers of a document table in memory: lengths, numbers, count.
std::int64_t table_size(std::int64_t capacity) { return 2 * capacity + 1; }

DocumentTable table_in(std::int32_t* base, std::int64_t capacity) {
  return {tensor(base, 1, capacity), tensor(base + capacity, 1, capacity),
          tensor(base + 2 * capacity, 1, 1)};
}

std::vector<std::int32_t> table_of(const HostPackedBatch& pack, std::int64_t capacity) {
  std::vector<std::int32_t> table(table_size(capacity));
  const std::int64_t slots = std::min<std::int64_t>(capacity, std::ssize(pack.lengths));
  std::copy_n(pack.lengths.begin(), slots, table.begin());
  std::copy_n(pack.numbers.begin(), slots, table.begin() + capacity);
  table.back() = static_cast<std::int32_t>(slots);
  return table;
}

// Copies integers to staging memory; `from` may be `to`.
void put(std::int32_t* to, const std::int32_t* from, std::int64_t count) {
  std::memmove(to, from, static_cast<std::size_t>(count) * sizeof(std::int32_t));
}

}  // namespace

Loader::Loader(Device& device, const PackShape& shape, std::int64_t capacity, int microbatches,
               bool poisons_staging)
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
    const Tensor<std::int32_t> block =
        pool_.make<std::int32_t>(1, faulty("inputs-have-room-for-two-packs", size, 2 * size));
    const DocumentTable table = table_in(block.data + 2 * shape.rows, capacity);
    entry->inputs = {block.columns(0, shape.rows), block.columns(shape.rows, shape.rows),
                     table.lengths, table.numbers, table.count};
    entry->staging = std::make_unique<PinnedBuffer>(
        device, static_cast<std::size_t>(size) * sizeof(std::int32_t));
    entry->loaded = std::make_unique<Event>(device, "loaded");
    entry->consumed = std::make_unique<Event>(device, "consumed");
    entries_.push_back(std::move(entry));
  }
}

Loader::~Loader() {
  try {
    stream_.synchronize();
  } catch (...) {  // Another call has reported the failure.
  }
}

void Loader::grow_overflow(Entry& entry, std::int64_t slots, const Stream& compute) {
  // The table is as large as any before: the metadata of the slot may have been made for that size,
  // and then reads as many entries.
  std::int64_t largest = 1;
  for (const auto& other : entries_)
    largest = std::max<std::int64_t>(largest, other->overflow.lengths.cols);
  std::int64_t capacity = faulty("overflow-table-of-its-own-size", largest, 1);
  while (capacity < slots) capacity *= 2;
  if (entry.overflow_memory && capacity == entry.overflow.lengths.cols) return;
  compute.synchronize();  // No kernel may still read the old table.
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

void Loader::load(int microbatch, const HostPackedBatch& pack, bool overflow,
                  const Stream& compute) {
  Entry& e = entry(microbatch);
  if (overflow) grow_overflow(e, std::ssize(pack.lengths), compute);
  e.loaded->synchronize();  // The previous copy reads the staging memory.
  stage(e, pack);
  stream_.wait(*e.consumed);
  using Call = std::function<void()>;
  const Call renew = [&] { e.consumed = std::make_unique<Event>(device_, "consumed"); };
  const Call renew_event = faulty<Call>(
      "awaited-event-is-made-anew", [] {}, renew);
  renew_event();
  stream_.copy(e.inputs.tokens.data, e.staging->data(), e.staging->bytes(),
               CopyKind::host_to_device);
  if (overflow) load_overflow(e, pack);
  stream_.record(*e.loaded);
}

void Loader::stage(const Entry& entry, const HostPackedBatch& pack) {
  begin_staging(*entry.staging);
  auto* const tokens = static_cast<std::int32_t*>(entry.staging->data());
  std::int32_t *const targets = tokens + shape_.rows, *const table = targets + shape_.rows;
  const std::vector<std::int32_t> fresh = table_of(pack, capacity_);
  const bool first = device_.place.step == 0;
  const std::int32_t* const new_targets = pack.targets.data();
  put(tokens, pack.tokens.data(), shape_.rows);
  put(targets, faulty("targets-not-refreshed", new_targets, first ? new_targets : targets),
      shape_.rows);
  put(table, faulty("document-table-not-refreshed", fresh.data(), first ? fresh.data() : table),
      std::ssize(fresh));
}

void Loader::load_overflow(const Entry& entry, const HostPackedBatch& pack) {
  auto* const staged = static_cast<std::int32_t*>(entry.overflow_staging->data());
  begin_staging(*entry.overflow_staging);
  const std::vector<std::int32_t> table = table_of(pack, entry.overflow.lengths.cols);
  put(staged, table.data(), std::ssize(table));
  stream_.copy(entry.overflow.lengths.data, staged, entry.overflow_staging->bytes(),
               CopyKind::host_to_device);
}

void Loader::load_state(const StepState& state, bool training) {
  state_loaded_.synchronize();
  begin_staging(state_staging_);
  const std::size_t behind_seed = device_.place.step > 0 ? offsetof(StepState, step) : 0;
  const std::size_t first = faulty("seed-staged-once", std::size_t{0}, behind_seed);
  std::memcpy(static_cast<std::byte*>(state_staging_.data()) + first,
              reinterpret_cast<const std::byte*>(&state) + first, sizeof(state) - first);
  stream_.wait(state_consumed_);
  stream_.copy(this->state(training).data, state_staging_.data(), sizeof(state),
               CopyKind::host_to_device);
  stream_.record(state_loaded_);
}

void Loader::wait_for(int microbatch, const Stream& compute) const {
  const int awaited = faulty("wait-for-the-first-microbatch-alone", microbatch, 0);
  compute.wait(*entry(awaited).loaded);
}
void Loader::wait_for_state(const Stream& compute) const { compute.wait(state_loaded_); }
void Loader::consumed(int microbatch, const Stream& compute) const {
  compute.record(*entry(microbatch).consumed);
}
void Loader::state_consumed(const Stream& compute) const { compute.record(state_consumed_); }

DocumentTable Loader::table(int microbatch, bool overflow) const {
  const Entry& e = entry(microbatch);
  if (overflow) return e.overflow;
  return {e.inputs.lengths, e.inputs.numbers, e.inputs.count};
}

}  // namespace lockstep
