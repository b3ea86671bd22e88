// The forward pass of causal attention, one document after the other (arithmetic.md 2.6).
#pragma once

#include <limits>

#include "oracle/arithmetic/functions.h"
#include "oracle/arithmetic/reductions.h"
#include "oracle/ops/attention_views.h"

namespace lockstep::oracle {

// The running maximum and sum of one row. Tensor cores keep the sum in four parts, by column of a
// block.
template <class Real>
struct SoftmaxRow {
  Real m = -std::numeric_limits<Real>::infinity(), l = 0, parts[4] = {};
};

// Adds the weights of a block to the earlier sum, scaled by al.
template <class Precision, class Real>
void take_weights(SoftmaxRow<Real>& row, const Real* p, Real al) {
  if constexpr (Precision::kTensorCores) {
    for (Real& part : row.parts) part = mul(part, al);
    for (int j = 0; j < Precision::kKvBlock; ++j)
      row.parts[j % 8 / 2] = add(row.parts[j % 8 / 2], p[j]);
  } else {
    Real t[Precision::kKvBlock];
    std::copy_n(p, Precision::kKvBlock, t);
    for (int off = Precision::kKvBlock / 2; off > 0; off /= 2) {
      for (int x = 0; x < off; ++x) t[x] = add(t[x], t[x + off]);
    }
    row.l = fma(row.l, al, t[0]);
  }
}

template <class Precision, class Real>
Real sum_of_weights(const SoftmaxRow<Real>& row) {
  const Real l = Precision::kTensorCores
                     ? add(add(row.parts[0], row.parts[1]), add(row.parts[2], row.parts[3]))
                     : row.l;
  return add(l, Real(0));
}

// Adds a block of scores to the maximum and the sum. Leaves the weights in p, with +0 from
// `visible` on, and returns the factor al that rescales the earlier sums.
template <class Precision, class Real>
Real take_block(SoftmaxRow<Real>& row, Real* p, std::int64_t visible) {
  Real largest = p[0];
  for (std::int64_t j = 1; j < visible; ++j) largest = max(largest, p[j]);
  const Real m = add(max(row.m, largest), Real(0));
  const Real al = expn(sub(row.m, m));
  for (int j = 0; j < Precision::kKvBlock; ++j) p[j] = j < visible ? expn(sub(p[j], m)) : Real(0);
  take_weights<Precision>(row, p, al);
  row.m = m;
  return al;
}

// Rows i0..i1 of one head. They see the kv blocks before row i0 whole, and the one that holds it up
// to the diagonal.
template <class Precision, class Real = typename Precision::Real>
void attention_rows(const HeadViews<Real>& head, std::int64_t i0, std::int64_t i1, Real scale,
                    Matrix<Real>& out, Matrix<Real>& lse, Mutant mutant) {
  constexpr std::int64_t kBlock = Precision::kKvBlock;
  const std::int64_t rows = i1 - i0, hd = head.head_dim;
  SoftmaxRow<Real> state[kRowTile];
  Matrix<Real> o(rows, hd), p(rows, kBlock);
  const bool peeks = mutant("attention-sees-the-next-token"),
             keeps = mutant("attention-forgets-to-rescale");
  for (std::int64_t j0 = 0; j0 < i1; j0 += kBlock) {
    const std::int64_t width = std::min(kBlock, std::min(head.length, i1 + (peeks ? 1 : 0)) - j0);
    const std::int64_t seen = i0 - j0 + (peeks ? 2 : 1);
    dots<Precision>(rows, width, hd, head.q(i0), head.keys_across(j0), p.values.data(), kBlock,
                    Chain::whole);
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t visible = std::min(width, seen + i);
      for (std::int64_t j = 0; j < width; ++j) p.row(i)[j] = mul(p.row(i)[j], scale);
      const Real al = take_block<Precision>(state[i], p.row(i), visible);
      for (std::int64_t e = 0; e < hd; ++e)
        o.row(i)[e] = keeps ? o.row(i)[e] : mul(o.row(i)[e], al);
      for (std::int64_t j = 0; j < visible; ++j) p.row(i)[j] = Precision::st(p.row(i)[j]);
    }
    visible_dots<Precision>(rows, hd, width, seen, p.values.data(), kBlock, head.v(j0),
                            o.values.data(), hd);
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    const Real l = sum_of_weights<Precision>(state[i]), inverse = div(Real(1), l);
    Real* to = out.row(head.first + i0 + i) + head.head * hd;
    for (std::int64_t e = 0; e < hd; ++e)
      to[e] = Precision::st(mul(add(o.row(i)[e], Real(0)), inverse));
    lse.row(head.first + i0 + i)[head.head] = Precision::kept(add(state[i].m, log(l)));
  }
}

// qkv [T, (heads + 2 kv_heads) * head_dim], after RoPE; out [T, heads * head_dim], lse [T, heads].
template <class Precision, class Real = typename Precision::Real>
void attention(const PackedBatch& pack, const AttentionShape& shape, const Matrix<Real>& qkv,
               Matrix<Real>& out, Matrix<Real>& lse, Mutant mutant) {
  const Real scale = attention_scale<Real>(shape, mutant);
  for (const Piece& document : mutant("attention-crosses-documents") ? pack.runs : pack.documents) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const HeadViews<Real> head(shape, qkv, document, h, mutant);
      for (std::int64_t i0 = 0; i0 < document.rows; i0 += kRowTile) {
        attention_rows<Precision>(head, i0, std::min(document.rows, i0 + kRowTile), scale, out, lse,
                                  mutant);
      }
    }
  }
}

}  // namespace lockstep::oracle
