// Rows of numbers. New memory is +0, which the contract demands of rows that an op does not visit.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::oracle {

template <class Real>
struct Matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<Real> values;

  Matrix() = default;
  Matrix(std::int64_t r, std::int64_t c) : rows(r), cols(c), values(r * c) {}
  Real* row(std::int64_t i) { return values.data() + i * cols; }
  const Real* row(std::int64_t i) const { return values.data() + i * cols; }
};

// The transpose of [rows, cols] elements whose rows lie `stride` apart.
template <class Real>
Matrix<Real> transposed(const Real* from, std::int64_t rows, std::int64_t cols,
                        std::int64_t stride) {
  Matrix<Real> to(cols, rows);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < cols; ++k) to.values[k * rows + i] = from[i * stride + k];
  }
  return to;
}

}  // namespace lockstep::oracle
