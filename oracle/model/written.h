// The values that each op of a pass wrote, for a search for the first op of an engine that wrote
// something else. Activation gradients are seen nowhere else.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "oracle/arithmetic/matrix.h"

namespace lockstep::oracle {

// [rows, cols], row-major. Names are those of docs/tensors.md, so that a difference can be placed.
struct Tensor {
  std::string name;
  int layer = -1;  // Symbol index, -1 outside the layers.
  std::int64_t rows = 0, cols = 0;
  std::vector<float> values;
};

using Written = std::vector<Tensor>;

// Notes the columns from `first` on, `cols` of them, or all. `to` may be null.
template <class Real>
void note_written(Written* to, const char* name, int layer, const Matrix<Real>& values,
                  std::int64_t first = 0, std::int64_t cols = -1) {
  if (to == nullptr) return;
  Tensor tensor{name, layer, values.rows, cols < 0 ? values.cols : cols, {}};
  for (std::int64_t i = 0; i < tensor.rows; ++i) {
    const Real* row = values.row(i) + first;
    for (std::int64_t k = 0; k < tensor.cols; ++k)
      tensor.values.push_back(static_cast<float>(row[k]));
  }
  to->push_back(std::move(tensor));
}
// Whole numbers are below 2^24, so that float holds them exactly.
template <class Number>
void note_written(Written* to, const char* name, int layer, std::int64_t rows,
                  const std::vector<Number>& values) {
  if (to == nullptr) return;
  Matrix<Number> matrix(rows, static_cast<std::int64_t>(values.size()) / rows);
  matrix.values = values;
  note_written(to, name, layer, matrix);
}

}  // namespace lockstep::oracle
