#include "engine/device.h"
#include "kernels/require.h"

namespace lockstep {

DeviceBuffer::DeviceBuffer(Device& device, std::size_t bytes) : device_(&device), bytes_(bytes) {
  require(!device.record_only_, "no allocation during a dry run");
  data_ = device.backend_->allocate(bytes);
  if (data_) device.observer_->on_allocate(data_, bytes, false);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& from) noexcept
    : device_(from.device_), data_(std::exchange(from.data_, nullptr)), bytes_(std::exchange(from.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer from) noexcept {
  std::swap(device_, from.device_);
  std::swap(data_, from.data_);
  std::swap(bytes_, from.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (!data_) return;
  try {
    device_->observer_->on_release(data_, false);
  } catch (...) {  // A destructor does not throw; a judge that must stop the run has other calls.
  }
  device_->backend_->release(data_);
}

PinnedBuffer::PinnedBuffer(Device& device, std::size_t bytes) : device_(&device), bytes_(bytes) {
  require(!device.record_only_, "no allocation during a dry run");
  data_ = device.backend_->allocate_pinned(bytes);
  if (data_) device.observer_->on_allocate(data_, bytes, true);
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& from) noexcept
    : device_(from.device_), data_(std::exchange(from.data_, nullptr)), bytes_(std::exchange(from.bytes_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer from) noexcept {
  std::swap(device_, from.device_);
  std::swap(data_, from.data_);
  std::swap(bytes_, from.bytes_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if (!data_) return;
  try {
    device_->observer_->on_release(data_, true);
  } catch (...) {
  }
  device_->backend_->release_pinned(data_);
}

}  // namespace lockstep
