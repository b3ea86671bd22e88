// Some memory of the device, whatever it holds.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/operand.h"

namespace lockstep {

struct MemoryRange {
  void* data;
  std::int64_t bytes;
};

template <class T>
MemoryRange range_of(const Tensor<T>& tensor) {
  return {tensor.data, tensor.size() * std::int64_t{sizeof(T)}};
}

inline std::int64_t bytes_of(const std::vector<MemoryRange>& ranges) {
  std::int64_t bytes = 0;
  for (const MemoryRange& range : ranges) bytes += range.bytes;
  return bytes;
}

}  // namespace lockstep
