// The backward pass of causal attention, one document after the other (arithmetic.md 2.6).
#pragma once

#include "oracle/arithmetic/functions.h"
#include "oracle/arithmetic/reductions.h"
#include "oracle/ops/attention_views.h"
#include "oracle/ops/linear.h"

namespace lockstep::oracle {

// Rows i0..i1 of a head against all keys that they see: weights p and score gradients ds, [rows,
// length].
template <class Precision, class Real = typename Precision::Real>
class ScoreTile {
 public:
  ScoreTile(std::int64_t length)
      : p(kRowTile, length), ds(kRowTile, length) {}  // NOLINT(google-explicit-constructor)

  void fill(const HeadViews<Real>& head, std::int64_t i0, std::int64_t i1,
            const Matrix<Real>& values, const Real* d_out, std::int64_t d_stride, const Real* lse,
            std::int64_t lse_stride, const Real* delta, Real scale) {
    const std::int64_t rows = i1 - i0, length = head.length;
    dots<Precision>(rows, i1, head.head_dim, head.q(i0), head.keys_across(0), p.values.data(),
                    length, Chain::whole);
    dots<Precision>(rows, i1, head.head_dim, Left<Real>{d_out + i0 * d_stride, d_stride, 1},
                    Right<Real>{values.values.data(), length}, ds.values.data(), length,
                    Chain::whole);
    for (std::int64_t i = 0; i < rows; ++i) {
      const Real row_lse = lse[(i0 + i) * lse_stride], row_delta = delta[i0 + i];
      Real* weight = p.row(i);
      Real* slope = ds.row(i);
      for (std::int64_t j = 0; j <= i0 + i; ++j) {
        weight[j] = expn(sub(mul(weight[j], scale), row_lse));
        slope[j] = Precision::st(mul(weight[j], sub(slope[j], row_delta)));
        weight[j] = Precision::st(weight[j]);
      }
    }
  }

  Matrix<Real> p, ds;
};

// dk and dv of one kv head sum over its query heads, and in each over its rows, in one chain each.
template <class Precision, class Real = typename Precision::Real>
void attention_head_gradient(const HeadViews<Real>& head, const Matrix<Real>& out,
                             const Matrix<Real>& lse, const Matrix<Real>& d_out, Real scale,
                             Matrix<Real>& dqkv, Matrix<Real>& dk, Matrix<Real>& dv,
                             Mutant mutant) {
  const std::int64_t hd = head.head_dim, length = head.length;
  const Real* o = out.row(head.first) + head.head * hd;
  const Real* d = d_out.row(head.first) + head.head * hd;
  std::vector<Real> delta(length);
  for (std::int64_t i = 0; i < length && !mutant("attention-gradient-forgets-delta"); ++i) {
    delta[i] = r128<Real>(hd, [oi = o + i * out.cols, di = d + i * d_out.cols](
                                  std::int64_t e, Real acc) { return fma(oi[e], di[e], acc); });
  }
  const Matrix<Real> values = head.values_across();
  ScoreTile<Precision> tile(length);
  Matrix<Real> dq(kRowTile, hd);
  for (std::int64_t i0 = 0; i0 < length; i0 += kRowTile) {
    const std::int64_t i1 = std::min(length, i0 + kRowTile), rows = i1 - i0;
    tile.fill(head, i0, i1, values, d, d_out.cols, lse.row(head.first) + head.head, lse.cols,
              delta.data(), scale);
    const Real *p = tile.p.values.data(), *ds = tile.ds.values.data();

    dots<Precision>(rows, hd, i0, Left<Real>{ds, length, 1}, head.k(0), dq.values.data(), hd,
                    Chain::first);
    lower_dots<Precision>(rows, hd, ds + i0, length, head.k(i0), dq.values.data(), hd, Chain::last);
    for (std::int64_t i = 0; i < rows; ++i) {
      Real* to = dqkv.row(head.first + i0 + i) + head.head * hd;
      const Real factor = mutant("attention-query-gradient-is-not-scaled") ? Real(1) : scale;
      for (std::int64_t e = 0; e < hd; ++e) to[e] = Precision::st(mul(dq.row(i)[e], factor));
    }

    const Right<Real> d_rows{d + i0 * d_out.cols, d_out.cols};
    dots<Precision>(i0, hd, rows, Left<Real>{p, 1, length}, d_rows, dv.values.data(), hd,
                    Chain::middle);
    upper_dots<Precision>(rows, hd, p + i0, length, d_rows, dv.row(i0), hd, Chain::middle);
    dots<Precision>(i0, hd, rows, Left<Real>{ds, 1, length}, head.q_rows(i0), dk.values.data(), hd,
                    Chain::middle);
    upper_dots<Precision>(rows, hd, ds + i0, length, head.q_rows(i0), dk.row(i0), hd,
                          Chain::middle);
  }
}

// Returns the gradients of queries and keys after RoPE, and of the values.
template <class Precision, class Real = typename Precision::Real>
Matrix<Real> attention_gradient(const PackedBatch& pack, const AttentionShape& shape,
                                const Matrix<Real>& qkv, const Matrix<Real>& out,
                                const Matrix<Real>& lse, const Matrix<Real>& d_out, Mutant mutant) {
  const Real scale = attention_scale<Real>(shape, mutant);
  const std::int64_t hd = shape.head_dim;
  Matrix<Real> dqkv(qkv.rows, qkv.cols);
  for (const Piece& document : mutant("attention-crosses-documents") ? pack.runs : pack.documents) {
    for (std::int64_t kv = 0; kv < shape.kv_heads; ++kv) {
      Matrix<Real> dk(document.rows, hd), dv(document.rows, hd);
      for (std::int64_t g = 0; g < shape.group(); ++g) {
        const std::int64_t turn =
            mutant("attention-value-gradient-takes-heads-downwards") ? shape.group() - 1 - g : g;
        const HeadViews<Real> head(shape, qkv, document, kv * shape.group() + turn, mutant);
        if (mutant("attention-key-gradient-forgets-a-head"))
          std::fill(dk.values.begin(), dk.values.end(), Real(0));
        attention_head_gradient<Precision>(head, out, lse, d_out, scale, dqkv, dk, dv, mutant);
      }
      for (std::int64_t j = 0; j < document.rows; ++j) {
        Real* to = dqkv.row(document.first + j);
        for (std::int64_t e = 0; e < hd; ++e) {
          to[(shape.heads + kv) * hd + e] = Precision::st(mul(add(dk.row(j)[e], Real(0)), scale));
          to[(shape.heads + shape.kv_heads + kv) * hd + e] =
              Precision::st(add(dv.row(j)[e], Real(0)));
        }
      }
    }
  }
  return dqkv;
}

}  // namespace lockstep::oracle
