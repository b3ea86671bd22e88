#include "engine/tensors/tensor_pool.h"

#include "kernels/diagnostics/poison.h"

namespace lockstep {

void TensorPool::reserve(const std::vector<std::int64_t>& bytes) const {
  constexpr std::size_t kAlignment = WindowMemory::kAlignment;
  std::size_t all = 0;
  for (const std::int64_t one : bytes)
    all += (static_cast<std::size_t>(one) + kAlignment - 1) / kAlignment * kAlignment;
  if (communicator_ != nullptr && all > 0) communicator_->reserve(all);
}

void TensorPool::poison(const Stream& stream, std::size_t first, std::size_t end) const {
  for (std::size_t i = first; i < end; ++i) {
    const DeviceBuffer& buffer = buffers_[i];
    if (buffer.bytes() > 0)
      stream.submit(lockstep::poison(buffer.data(), static_cast<std::int64_t>(buffer.bytes())));
  }
}

}  // namespace lockstep
