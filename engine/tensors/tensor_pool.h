// Device memory of a part of the engine, allocated once and kept: graphs hold its addresses.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/device/window_memory.h"

namespace lockstep {

class TensorPool {
 public:
  // `communicator`: whose exchanges the tensors take part in; null for none.
  explicit TensorPool(Device& device, Communicator* communicator = nullptr)
      : device_(device), communicator_(communicator) {}

  template <class T>
  Tensor<T> make(std::int64_t rows, std::int64_t cols) {
    const std::size_t bytes = sizeof(T) * (rows * cols);
    buffers_.push_back(communicator_ == nullptr ? DeviceBuffer(device_, bytes)
                                                : communicator_->buffer(device_, bytes));
    return tensor(static_cast<T*>(buffers_.back().data()), rows, cols);
  }
  // Tensors of these bytes come next.
  void reserve(const std::vector<std::int64_t>& bytes) const;
  std::size_t size() const { return buffers_.size(); }
  // Takes away the value of the buffers [first, end).
  void poison(const Stream& stream, std::size_t first, std::size_t end) const;
  void append_addresses(std::vector<const void*>& table) const {
    for (const DeviceBuffer& buffer : buffers_) table.push_back(buffer.data());
  }

 private:
  Device& device_;
  Communicator* communicator_;
  std::deque<DeviceBuffer> buffers_;
};

}  // namespace lockstep
