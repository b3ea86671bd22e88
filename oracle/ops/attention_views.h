// Queries, keys and values of one head in one document.
#pragma once

#include "oracle/arithmetic/dots.h"
#include "oracle/arithmetic/matrix.h"
#include "oracle/arithmetic/pack.h"

namespace lockstep::oracle {

inline constexpr int kRowTile =
    32;  // Rows of a head that are taken together; a multiple of 16 for the k16 groups.

struct AttentionShape {
  std::int64_t heads, kv_heads, head_dim;
  std::int64_t group() const { return heads / kv_heads; }
};

template <class Real>
Real attention_scale(const AttentionShape& shape, Mutant mutant) {
  return mutant("attention-forgets-its-scale")
             ? Real(1)
             : div(Real(1), sqrt(static_cast<Real>(shape.head_dim)));
}

template <class Real>
class HeadViews {
 public:
  HeadViews(const AttentionShape& shape, const Matrix<Real>& qkv, const Piece& document,
            std::int64_t h, Mutant mutant)
      : head(h),
        head_dim(shape.head_dim),
        first(document.first),
        length(document.rows),
        stride_(qkv.cols) {
    kv_head = mutant("attention-takes-another-kv-head") ? shape.kv_heads - 1 - h / shape.group()
                                                        : h / shape.group();
    q_ = qkv.row(first) + head * head_dim;
    k_ = qkv.row(first) + (shape.heads + kv_head) * head_dim;
    v_ = qkv.row(first) + (shape.heads + shape.kv_heads + kv_head) * head_dim;
    keys_ = transposed(k_, length, head_dim, stride_);
  }

  Left<Real> q(std::int64_t i) const { return {q_ + i * stride_, stride_, 1}; }
  Right<Real> q_rows(std::int64_t i) const { return {q_ + i * stride_, stride_}; }
  Right<Real> k(std::int64_t j) const { return {k_ + j * stride_, stride_}; }
  Right<Real> v(std::int64_t j) const { return {v_ + j * stride_, stride_}; }
  Right<Real> keys_across(std::int64_t j) const { return {keys_.values.data() + j, length}; }
  Matrix<Real> values_across() const { return transposed(v_, length, head_dim, stride_); }

  std::int64_t head, kv_head = 0, head_dim, first, length;

 private:
  std::int64_t stride_;
  const Real *q_, *k_, *v_;
  Matrix<Real> keys_;  // [head_dim, length]
};

}  // namespace lockstep::oracle
