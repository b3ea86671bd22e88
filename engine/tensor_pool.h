// Device memory of a part of the engine, allocated once and kept: graphs hold its addresses.
#pragma once

#include <deque>
#include <vector>

#include "engine/device.h"

namespace lockstep {

class TensorPool {
 public:
  // `poison_on` fills fresh memory with NaN through that stream (the simulator poisons by itself).
  explicit TensorPool(Device& device, const Stream* poison_on = nullptr) : device_(device), poison_on_(poison_on) {}

  template <class T>
  Tensor<T> make(std::int64_t rows, std::int64_t cols) {
    const std::size_t bytes = sizeof(T) * static_cast<std::size_t>(rows * cols);
    buffers_.emplace_back(device_, bytes);
    if (poison_on_ != nullptr) poison(buffers_.back());
    return tensor(static_cast<T*>(buffers_.back().data()), rows, cols);
  }
  void append_addresses(std::vector<const void*>& table) const {
    for (const DeviceBuffer& buffer : buffers_) table.push_back(buffer.data());
  }

 private:
  // Its place tells the observer that these bytes are no value.
  void poison(const DeviceBuffer& buffer) const {
    const char* part = std::exchange(device_.place.part, "poison");
    poison_on_->fill(buffer.data(), 0xff, buffer.bytes());
    device_.place.part = part;
  }
  Device& device_;
  const Stream* poison_on_;
  std::deque<DeviceBuffer> buffers_;
};

}  // namespace lockstep
