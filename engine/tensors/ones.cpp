#include "engine/tensors/ones.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::int64_t kStaged = 64;

}  // namespace

Ones::Ones(Device& device, const Stream& stream, std::int64_t elements)
    : wide_staging_(device, kStaged * sizeof(float)),
      narrow_staging_(device, kStaged * sizeof(bf16)),
      pool_(device),
      wide_(make(stream, wide_staging_, elements, 1.0f)),
      narrow_(make(stream, narrow_staging_, elements, st<bf16>(1.0f))) {}

// The first ones come from the host; each copy then doubles them.
template <class T>
Tensor<T> Ones::make(const Stream& stream, PinnedBuffer& staging, std::int64_t elements, T one) {
  const Tensor<T> ones = pool_.make<T>(1, elements);
  stream.device().host_writes(staging.data(), staging.bytes());
  std::fill_n(static_cast<T*>(staging.data()), kStaged, one);
  const auto copy = [&](std::int64_t first, const void* from, std::int64_t count, CopyKind kind) {
    stream.copy(ones.data + first, from, count * sizeof(T), kind);
  };
  std::int64_t done = std::min(kStaged, elements);
  copy(0, staging.data(), done, CopyKind::host_to_device);
  for (; done < elements; done *= 2)
    copy(done, ones.data, std::min(done, elements - done), CopyKind::device_to_device);
  return ones;
}

}  // namespace lockstep
