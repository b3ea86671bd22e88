#include "engine/device/device.h"

namespace lockstep {

template <bool pinned>
Buffer<pinned>::Buffer(Device& device, std::size_t bytes, BackendCommunicator* ranks)
    : device_(&device), data_(device.allocate(bytes, pinned, ranks)), bytes_(bytes) {}

template <bool pinned>
Buffer<pinned>::Buffer(Buffer&& from) noexcept
    : device_(from.device_),
      data_(std::exchange(from.data_, nullptr)),
      bytes_(std::exchange(from.bytes_, 0)) {}

template <bool pinned>
Buffer<pinned>& Buffer<pinned>::operator=(Buffer from) noexcept {
  std::swap(device_, from.device_);
  std::swap(data_, from.data_);
  std::swap(bytes_, from.bytes_);
  return *this;
}

template <bool pinned>
Buffer<pinned>::~Buffer() {
  device_->release(data_, pinned);
}

template class Buffer<false>;
template class Buffer<true>;

}  // namespace lockstep
