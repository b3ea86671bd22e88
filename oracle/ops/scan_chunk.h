// One chunk of the Mamba-2 scan (arithmetic.md 2.8): what the forward and backward pass both
// compute for a head.
#pragma once

#include "oracle/arithmetic/dots.h"
#include "oracle/arithmetic/functions.h"
#include "oracle/arithmetic/matrix.h"
#include "oracle/arithmetic/pack.h"
#include "oracle/ops/linear.h"

namespace lockstep::oracle {

struct ScanShape {
  std::int64_t heads, head_dim, groups, state, chunk;
  std::int64_t inner() const { return heads * head_dim; }
  std::int64_t group_heads() const { return heads / groups; }
};

// The inputs of the scan: `xbc` is the stored output of the convolution, dt the stored columns of
// in_proj.
template <class Real>
struct ScanInput {
  ScanShape shape;
  const Matrix<Real>& xbc;
  const Matrix<Real>& in_proj;
  const Real *dt_bias, *a_log, *d;

  const Real* x(std::int64_t row, std::int64_t head) const {
    return xbc.row(row) + head * shape.head_dim;
  }
  const Real* b(std::int64_t row, std::int64_t group) const {
    return xbc.row(row) + shape.inner() + group * shape.state;
  }
  const Real* c(std::int64_t row, std::int64_t group) const {
    return b(row, group) + shape.groups * shape.state;
  }
  Real dt(std::int64_t row, std::int64_t head) const {
    return in_proj.row(row)[in_proj.cols - shape.heads + head];
  }
};

struct ChunkRows {
  std::int64_t first, rows;
};

inline std::vector<ChunkRows> chunks_of(const Piece& document, std::int64_t chunk, Mutant mutant) {
  std::vector<ChunkRows> list;
  const std::int64_t end = document.first + document.rows;
  for (std::int64_t first = document.first; first < end;) {
    const std::int64_t place = mutant("scan-chunks-start-at-the-pack") ? first % chunk : 0;
    const std::int64_t rows = std::min(chunk - place, end - first);
    list.push_back({first, rows});
    first += rows;
  }
  return list;
}

// The decays and operands of one head in one chunk.
template <class Precision, class Real = typename Precision::Real>
struct HeadChunk {
  HeadChunk(const ScanInput<Real>& in, ChunkRows at, std::int64_t h, Mutant mutant)
      : rows(at.rows),
        a(neg(exp(in.a_log[h]))),
        dt(rows),
        cs(rows),
        e(rows),
        r(rows),
        w(rows),
        xd(rows, in.shape.head_dim),
        xw(rows, in.shape.head_dim) {
    Real c = 0;
    for (std::int64_t j = 0; j < rows; ++j) {
      const Real raw = in.dt(at.first + j, h);
      dt[j] = softplus(mutant("scan-forgets-dt-bias") ? raw : add(raw, in.dt_bias[h]));
      c = fma(dt[j], a, c);
      cs[j] = c;
    }
    const Real last = cs[rows - 1];
    el = mutant("scan-state-is-not-decayed") ? Real(1) : expn(last);
    for (std::int64_t j = 0; j < rows; ++j) {
      e[j] = expn(cs[j]);
      r[j] = expn(sub(last, cs[j]));
      w[j] = mul(r[j], dt[j]);
    }
    for (std::int64_t j = 0; j < rows; ++j) {
      const Real* x = in.x(at.first + j, h);
      for (std::int64_t p = 0; p < in.shape.head_dim; ++p) {
        xd.row(j)[p] = Precision::st(mul(x[p], dt[j]));
        xw.row(j)[p] = Precision::st(mul(x[p], w[j]));
      }
    }
  }

  // Ld, the decay from row j to row i, defined for j <= i.
  Matrix<Real> decays(Mutant mutant) const {
    Matrix<Real> ld(rows, rows);
    const bool twice = mutant("scan-decay-includes-its-own-step-twice");
    for (std::int64_t i = 0; i < rows; ++i) {
      Real* to = ld.row(i);
      const Real from = twice ? fma(dt[i], a, cs[i]) : cs[i];
      for (std::int64_t j = 0; j <= i; ++j) to[j] = expn(sub(from, cs[j]));
    }
    return ld;
  }

  std::int64_t rows;
  Real a, el = 0;  // A, and the whole chunk's decay.
  std::vector<Real> dt, cs, e, r, w;
  Matrix<Real> xd, xw;  // [rows, head_dim]
};

// B and C of a group in one chunk, shared by the group's heads.
template <class Precision, class Real = typename Precision::Real>
struct GroupChunk {
  GroupChunk(const ScanInput<Real>& in, ChunkRows at, std::int64_t g)
      : rows(at.rows),
        state(in.shape.state),
        stride(in.xbc.cols),
        b(in.b(at.first, g)),
        c(in.c(at.first, g)) {}

  // Gm_ij = C_i . B_j
  Matrix<Real> products() const {
    Matrix<Real> gm(rows, rows);
    const Matrix<Real> across = transposed(b, rows, state, stride);
    dots<Precision>(rows, rows, state, Left<Real>{c, stride, 1},
                    Right<Real>{across.values.data(), rows}, gm.values.data(), rows, Chain::whole);
    return gm;
  }

  std::int64_t rows, state, stride;
  const Real *b, *c;  // First row; rows lie `stride` apart.
};

// M = st(Gm * Ld), defined for j <= i.
template <class Precision, class Real = typename Precision::Real>
Matrix<Real> decayed(const Matrix<Real>& gm, const Matrix<Real>& ld) {
  Matrix<Real> m(gm.rows, gm.cols);
  for (std::int64_t i = 0; i < gm.rows; ++i) {
    for (std::int64_t j = 0; j <= i; ++j)
      m.row(i)[j] = Precision::st(mul(gm.row(i)[j], ld.row(i)[j]));
  }
  return m;
}

template <class Precision, class Real = typename Precision::Real>
Matrix<Real> stored(const Matrix<Real>& from) {
  Matrix<Real> to = from;
  store<Precision>(to.values.data(), static_cast<std::int64_t>(to.values.size()));
  return to;
}

// y~ of a chunk: the terms of the state before it, then those of its own rows, in one chain.
template <class Precision, class Real = typename Precision::Real>
Matrix<Real> scan_sums(const HeadChunk<Precision>& head, const GroupChunk<Precision>& group,
                       const Matrix<Real>& m, const Matrix<Real>& sb, Mutant mutant) {
  const std::int64_t rows = head.rows, p = sb.cols;
  Matrix<Real> y(rows, p);
  dots<Precision>(rows, p, sb.rows, Left<Real>{group.c, group.stride, 1},
                  Right<Real>{sb.values.data(), p}, y.values.data(), p, Chain::whole);
  const bool lost = mutant("scan-forgets-the-carried-state");
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < p; ++k) y.row(i)[k] = lost ? Real(0) : mul(y.row(i)[k], head.e[i]);
  }
  lower_dots<Precision>(rows, p, m.values.data(), rows, Right<Real>{head.xd.values.data(), p},
                        y.values.data(), p, Chain::last);
  return y;
}

// Computes S', the state for the next chunk.
template <class Precision, class Real = typename Precision::Real>
void advance_state(const HeadChunk<Precision>& head, const GroupChunk<Precision>& group,
                   Matrix<Real>& s) {
  Matrix<Real> gain(s.rows, s.cols);
  dots<Precision>(s.rows, s.cols, head.rows, Left<Real>{group.b, 1, group.stride},
                  Right<Real>{head.xw.values.data(), s.cols}, gain.values.data(), s.cols,
                  Chain::whole);
  for (std::size_t e = 0; e < s.values.size(); ++e)
    s.values[e] = fma(head.el, s.values[e], gain.values[e]);
}

inline std::int64_t group_of(const ScanShape& shape, std::int64_t head, Mutant mutant) {
  return (head / shape.group_heads() + (mutant("scan-takes-the-next-group") ? 1 : 0)) %
         shape.groups;
}

inline const std::vector<Piece>& scan_pieces(const PackedBatch& pack, Mutant mutant) {
  return mutant("scan-state-crosses-documents") ? pack.runs : pack.documents;
}

}  // namespace lockstep::oracle
