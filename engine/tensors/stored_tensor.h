// Tensors that a judge may read between two launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"

namespace lockstep {

// A contiguous tensor on the device. Its values are read as floats: bf16 is widened exactly, and
// integers, which are numbers of rows, are below 2^24.
struct StoredValues {
  StoredValues() = default;
  StoredValues(Tensor<float> t) : data(t.data), rows(t.rows), cols(t.cols) {}
  StoredValues(Tensor<bf16> t) : data(t.data), rows(t.rows), cols(t.cols), narrow(true) {}
  StoredValues(Tensor<std::int32_t> t) : data(t.data), rows(t.rows), cols(t.cols), integers(true) {}
  const void* data = nullptr;
  std::int64_t rows = 0, cols = 0;
  bool narrow = false;    // bf16
  bool integers = false;  // int32
  // The data is a copy in pinned memory, complete when the compute stream is: of an offloaded
  // tensor, or of one whose memory is reused.
  bool on_host = false;
  std::size_t bytes() const {
    return static_cast<std::size_t>(rows * cols) * (narrow ? sizeof(bf16) : sizeof(float));
  }
};

struct NamedTensor {
  std::string name;  // docs/tensors.md
  int layer = -1;
  std::string op;  // The op that wrote the tensor.
  StoredValues tensor;
  enum class Rows : std::uint8_t {
    pack,           // The rows of the pack, or one row.
    buffer,         // The rows of the experts' buffer.
    ragged_buffer,  // As `buffer`, but only the first rows hold values: one for each pair that was
                    // not dropped.
    slots,          // One row: a boundary for each slot, and the end. Its length follows from the
                    // capacity; boundaries of unused slots repeat the last.
  };
  Rows rows = Rows::pack;
};

}  // namespace lockstep
