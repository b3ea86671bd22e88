#include "engine/device.h"

namespace lockstep {

DeviceBuffer::DeviceBuffer(Device& device, std::size_t bytes)
    : device_(&device), data_(device.allocate(bytes, false)), bytes_(bytes) {}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& from) noexcept
    : device_(from.device_), data_(std::exchange(from.data_, nullptr)), bytes_(std::exchange(from.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer from) noexcept {
  std::swap(device_, from.device_);
  std::swap(data_, from.data_);
  std::swap(bytes_, from.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() { device_->release(data_, false); }

PinnedBuffer::PinnedBuffer(Device& device, std::size_t bytes)
    : device_(&device), data_(device.allocate(bytes, true)), bytes_(bytes) {}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& from) noexcept
    : device_(from.device_), data_(std::exchange(from.data_, nullptr)), bytes_(std::exchange(from.bytes_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer from) noexcept {
  std::swap(device_, from.device_);
  std::swap(data_, from.data_);
  std::swap(bytes_, from.bytes_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() { device_->release(data_, true); }

}  // namespace lockstep
