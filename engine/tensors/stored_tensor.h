// Tensors that a judge may read between two launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/core/contract.h"
#include "kernels/core/fp8.h"
#include "kernels/core/operand.h"
#include "kernels/core/row_segments.h"

namespace lockstep {

// A tensor on the device, contiguous but for codes. Its values are read as floats: bf16 is widened
// exactly, integers, which are numbers of rows or exponents, are below 2^24, an amax is the bits of
// a float, and a code of fp8 is the number that its bits are.
struct StoredValues {
  StoredValues() = default;
  StoredValues(Tensor<float> t) : data(t.data), rows(t.rows), cols(t.cols) {}
  StoredValues(Tensor<bf16> t) : data(t.data), rows(t.rows), cols(t.cols), narrow(true) {}
  StoredValues(Tensor<std::int32_t> t) : data(t.data), rows(t.rows), cols(t.cols), integers(true) {}
  StoredValues(Tensor<std::uint32_t> amax) : data(amax.data), rows(amax.rows), cols(amax.cols) {}
  // Codes of a matrix [rows, cols], in rows of a multiple of 16 codes: by its rows, or transposed.
  enum class Codes : std::uint8_t { none, by_rows, by_columns };
  StoredValues(Tensor<e4m3> t, std::int64_t rows, std::int64_t cols, Codes codes)
      : data(t.data), rows(rows), cols(cols), all_rows(rows), codes(codes) {}
  // Rows of transposed codes that lie in segments, each up to a multiple of 16 codes. A row of no
  // segment has code 00 and no place.
  struct Segments {
    Tensor<std::int32_t> start = {}, rows = {};  // [1, S]; absent: one segment.
    // As many codes follow one another as the segments' rows need, none without a row; otherwise
    // as all rows.
    bool follow_the_data = false;
  };
  const void* data = nullptr;
  std::int64_t rows = 0, cols = 0;
  std::int64_t all_rows = 0;  // The codes' rows; a judge may read the first `rows` alone.
  Codes codes = Codes::none;
  Segments segments = {};
  bool narrow = false;    // bf16
  bool integers = false;  // int32
  // The data is a copy in pinned memory, complete when the compute stream is: of an offloaded
  // tensor, or of one whose memory is reused.
  bool on_host = false;
  std::size_t bytes() const {
    if (codes == Codes::by_rows) return rows * fp8_padded(cols);
    if (segments.rows)
      return all_rows == 0 ? 0 : cols * transposed_columns(all_rows, segments.rows.cols);
    if (codes == Codes::by_columns) return cols * fp8_padded(rows);
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
    words,          // No rows of a pack: a weight's, or one for each segment.
  };
  Rows rows = Rows::pack;
  bool of_backward = false;  // The backward pass writes it.
};

}  // namespace lockstep
