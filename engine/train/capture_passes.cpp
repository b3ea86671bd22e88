#include "engine/train/capture_passes.h"

#include <algorithm>

#include "kernels/core/require.h"

namespace lockstep {
namespace {

// Lengths and numbers of the documents, and their count.
std::int64_t table_size(std::int64_t capacity) { return 2 * capacity + 1; }

// The longest document of a captured launch whose slot fits into the pack.
std::int32_t length_of(const PackShape& shape) {
  const std::int64_t fits = shape.rows / shape.align * shape.align - shape.gaps;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(fits, 0, shape.max_seqlen));
}

}  // namespace

CapturePasses::CapturePasses(Device& device, const Stream& compute, const PackShape& shape,
                             std::int64_t capacity, std::int64_t ones, std::int64_t kept)
    : compute_(compute),
      pool_(device),
      table_staging_(device, table_size(capacity) * sizeof(std::int32_t)),
      table_(make_table(shape, capacity)),
      ones_(device, compute, ones),
      kept_(pool_.make<std::uint8_t>(1, kept)) {}

DocumentTable CapturePasses::make_table(const PackShape& shape, std::int64_t capacity) {
  compute_.device().host_writes(table_staging_.data(), table_staging_.bytes());
  auto* const staged = static_cast<std::int32_t*>(table_staging_.data());
  std::fill_n(staged, table_size(capacity), 0);
  staged[0] = length_of(shape);
  staged[2 * capacity] = 1;
  const Tensor<std::int32_t> all = pool_.make<std::int32_t>(1, table_size(capacity));
  compute_.copy(all.data, staged, table_staging_.bytes(), CopyKind::host_to_device);
  return {all.columns(0, capacity), all.columns(capacity, capacity), all.columns(2 * capacity, 1)};
}

void CapturePasses::keep(const std::vector<MemoryRange>& memory) {
  require(bytes_of(memory) <= kept_.cols, "there is room for all that is kept aside");
  memory_ = memory;
  std::uint8_t* to = kept_.data;
  for (const MemoryRange& range : memory_) {
    if (range.bytes > 0) compute_.copy(to, range.data, range.bytes, CopyKind::device_to_device);
    to += range.bytes;
  }
  Device& device = compute_.device();
  counted_ = device.counters.of(device.place.rank);
}

void CapturePasses::put_back() {
  const std::uint8_t* from = kept_.data;
  for (const MemoryRange& range : memory_) {
    if (range.bytes > 0) compute_.copy(range.data, from, range.bytes, CopyKind::device_to_device);
    from += range.bytes;
  }
  memory_.clear();
  Device& device = compute_.device();
  device.counters.of(device.place.rank) = counted_;
}

}  // namespace lockstep
