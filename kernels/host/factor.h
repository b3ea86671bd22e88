// DOT of arithmetic.md 0.1 in either numerics: fp32 chains (host/chain.h) or chains of FDA16
// (host/fda16.h).
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/host/chain.h"
#include "kernels/host/fda16.h"

namespace lockstep {

// The right factor b(e, j) of many dots over e, for every j < n side by side. The left one is a row
// a(e) of values as they are stored. set() takes b(e, j) = data[e * step_stride + j *
// column_stride], which must live as long.
template <class T>
class Factor;

template <>
class Factor<float> {
 public:
  void set(std::int64_t k, std::int64_t n, const float* data, std::int64_t step_stride,
           std::int64_t column_stride) {
    data_ = data, pitch_ = step_stride;
    if (column_stride == 1) return;
    pitch_ = (n + kPadding - 1) / kPadding * kPadding;
    if (transposed_.size() < static_cast<std::size_t>(k * pitch_)) {
      transposed_.resize(k * pitch_);
    }
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t e = 0; e < k; ++e)
        transposed_[e * pitch_ + j] = data[e * step_stride + j * column_stride];
    }
    data_ = transposed_.data();
  }
  // Continues the chains in c over the places begin <= e < end. The caller adds +0 after the last
  // link.
  void link(std::int64_t begin, std::int64_t end, const float* a, std::int64_t a_stride, float* c,
            std::int64_t columns) const {
    chain_row(columns, end - begin, a + begin * a_stride, a_stride, data_ + begin * pitch_, pitch_,
              c);
  }

 private:
  static constexpr std::int64_t kPadding =
      32;  // Columns that are computed with their neighbours and never read.
  const float* data_ = nullptr;
  std::int64_t pitch_ = 0;
  std::vector<float> transposed_;
};

template <>
class Factor<bf16> {
 public:
  void set(std::int64_t k, std::int64_t n, const float* data, std::int64_t step_stride,
           std::int64_t column_stride) {
    panels_.pack(k, n, data, step_stride, column_stride);
  }
  // Groups of 16 are at multiples of 16 of e.
  void link(std::int64_t begin, std::int64_t end, const float* a, std::int64_t a_stride, float* c,
            std::int64_t columns) const {
    fda_row(begin, end, a, a_stride, panels_, c, std::min(columns, panels_.columns()));
  }

 private:
  FdaPanels panels_;
};

// A finished DOT for every j < columns.
template <class T>
void dot(std::int64_t k, const float* a, std::int64_t a_stride, const Factor<T>& b, float* c,
         std::int64_t columns) {
  set_zero(columns, c);
  b.link(0, k, a, a_stride, c, columns);
  add_zero(columns, c);
}

// x = st(x), as the arithmetic reads it.
template <class T>
void round_row(std::int64_t n, float* x) {
  if constexpr (!std::is_same_v<T, float>) {
    for (std::int64_t e = 0; e < n; ++e) x[e] = load(st<T>(x[e]));
  }
}

}  // namespace lockstep
