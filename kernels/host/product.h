// c[i, j] = CHAIN32 over e = 0..k-1 of a(i, e), b(e, j): the three products of a linear layer on
// one core.
#pragma once

#include <cstdint>

namespace lockstep {

// Element (i, j) lies at data[i * row_stride + j * col_stride].
struct MatrixView {
  const float* data;
  std::int64_t row_stride;
  std::int64_t col_stride;
};

void product(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView a, MatrixView b, float* c,
             std::int64_t c_pitch);

}  // namespace lockstep
