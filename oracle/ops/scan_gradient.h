// The backward pass of the Mamba-2 scan, one document after the other (arithmetic.md 2.8).
#pragma once

#include "oracle/arithmetic/reductions.h"
#include "oracle/ops/scan_chunk.h"

namespace lockstep::oracle {

template <class Real>
struct ScanGradients {
  Matrix<Real>& xbc;               // Gradient of the convolution's output.
  Matrix<Real>& in_proj;           // Gradient of in_proj; only its columns of dt.
  Matrix<Real> dt_bias, a_log, d;  // [T, heads]: terms of the column sums.
};

// State of the pass over one document.
template <class Precision>
class ScanBackward {
  using Real = typename Precision::Real;

 public:
  ScanBackward(const ScanInput<Real>& in, const Matrix<Real>& dy, ScanGradients<Real>& to,
               Mutant mutant)
      : in_(in), shape_(in.shape), dy_(dy), to_(to), mutant_(mutant) {}

  void run(const Piece& document) {
    const std::vector<ChunkRows> chunks = chunks_of(document, shape_.chunk, mutant_);
    find_states(chunks);
    later_.assign(shape_.heads, Matrix<Real>(shape_.state, shape_.head_dim));
    for (std::size_t k = chunks.size(); k-- > 0;) {
      for (std::int64_t g = 0; g < shape_.groups; ++g) group(chunks[k], states_[k], g);
    }
  }

 private:
  // Recomputes the state at the start of every chunk by the forward pass's own expressions.
  void find_states(const std::vector<ChunkRows>& chunks) {
    std::vector<Matrix<Real>> s(shape_.heads, Matrix<Real>(shape_.state, shape_.head_dim));
    states_.clear();
    for (const ChunkRows at : chunks) {
      states_.push_back(s);
      for (std::int64_t h = 0; h < shape_.heads; ++h) {
        advance_state<Precision>(HeadChunk<Precision>(in_, at, h, mutant_),
                                 GroupChunk<Precision>(in_, at, group_of(shape_, h, mutant_)),
                                 s[h]);
      }
    }
  }

  void group(ChunkRows at, const std::vector<Matrix<Real>>& states, std::int64_t g) {
    const std::int64_t n = shape_.state, rows = at.rows;
    const GroupChunk<Precision> group(in_, at, g);
    const Matrix<Real> gm = group.products();
    Matrix<Real> kk(rows, rows), db(rows, n), dc(rows, n);
    for (std::int64_t h = g * shape_.group_heads(); h < (g + 1) * shape_.group_heads(); ++h) {
      if (mutant_("scan-b-gradient-forgets-a-head"))
        std::fill(db.values.begin(), db.values.end(), Real(0));
      head(at, h, group, gm, states[h], kk, db, dc);
    }
    for (Real& value : kk.values) value = Precision::st(add(value, Real(0)));
    lower_dots<Precision>(rows, n, kk.values.data(), rows, Right<Real>{group.b, group.stride},
                          dc.values.data(), n, Chain::last);
    upper_dots<Precision>(rows, n, kk.values.data(), rows, Right<Real>{group.c, group.stride},
                          db.values.data(), n, Chain::last);
    for (std::int64_t j = 0; j < rows; ++j) {
      Real* to_b = to_.xbc.row(at.first + j) + shape_.inner() + g * n;
      for (std::int64_t k = 0; k < n; ++k) {
        to_b[k] = Precision::st(db.row(j)[k]);
        to_b[k + shape_.groups * n] = Precision::st(dc.row(j)[k]);
      }
    }
  }

  void head(ChunkRows at, std::int64_t h, const GroupChunk<Precision>& group,
            const Matrix<Real>& gm, const Matrix<Real>& s, Matrix<Real>& kk, Matrix<Real>& db,
            Matrix<Real>& dc) {
    const std::int64_t rows = at.rows, p = shape_.head_dim, n = shape_.state;
    const HeadChunk<Precision> head(in_, at, h, mutant_);
    const Matrix<Real> ld = head.decays(mutant_), m = decayed<Precision>(gm, ld),
                       sb = stored<Precision>(s), dsb = stored<Precision>(later_[h]);
    const Real* dy = dy_.row(at.first) + h * p;
    const Right<Real> dy_rows{dy, dy_.cols};

    Matrix<Real> t(rows, p), xa(rows, p);
    dots<Precision>(rows, p, n, Left<Real>{group.b, group.stride, 1},
                    Right<Real>{dsb.values.data(), p}, t.values.data(), p, Chain::whole);
    for (std::int64_t j = 0; j < rows; ++j) {
      for (std::int64_t k = 0; k < p; ++k) xa.row(j)[k] = mul(t.row(j)[k], head.r[j]);
    }
    upper_dots<Precision>(rows, p, m.values.data(), rows, dy_rows, xa.values.data(), p,
                          Chain::last);
    for (std::int64_t j = 0; j < rows; ++j) {
      Real* dx = to_.xbc.row(at.first + j) + h * p;
      const Real* slope = dy + j * dy_.cols;
      for (std::int64_t k = 0; k < p; ++k) {
        dx[k] = Precision::st(fma(in_.d[h], slope[k], mul(xa.row(j)[k], head.dt[j])));
      }
    }

    const Matrix<Real> sums = scan_sums<Precision>(head, group, m, sb, mutant_);
    decays(at, h, head, s, t, xa, sums);
    add_products(head, ld, dy, kk);

    Matrix<Real> dye(rows, p);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t k = 0; k < p; ++k)
        dye.row(i)[k] = Precision::st(mul(dy[i * dy_.cols + k], head.e[i]));
    }
    const Matrix<Real> s_across = transposed(sb.values.data(), n, p, p),
                       ds_across = transposed(dsb.values.data(), n, p, p);
    if (!mutant_("scan-c-gradient-forgets-the-state")) {
      dots<Precision>(rows, n, p, Left<Real>{dye.values.data(), p, 1},
                      Right<Real>{s_across.values.data(), n}, dc.values.data(), n, Chain::middle);
    }
    dots<Precision>(rows, n, p, Left<Real>{head.xw.values.data(), p, 1},
                    Right<Real>{ds_across.values.data(), n}, db.values.data(), n, Chain::middle);
    step_back(h, head, group, dye);
  }

  // Computes the gradients of dt, dt_bias, A_log and D through the cumulative decays.
  void decays(ChunkRows at, std::int64_t h, const HeadChunk<Precision>& head, const Matrix<Real>& s,
              const Matrix<Real>& t, const Matrix<Real>& xa, const Matrix<Real>& sums) {
    const std::int64_t rows = at.rows, p = shape_.head_dim;
    std::vector<Real> g(rows), dcs(rows);
    Real ex = 0;
    for (std::int64_t j = 0; j < rows; ++j) {
      const Real *x = in_.x(at.first + j, h), *dy = dy_.row(at.first + j) + h * p;
      g[j] = inner(x, xa.row(j));
      const Real hj = inner(dy, sums.row(j)), q = inner(x, t.row(j));
      dcs[j] = sub(hj, mul(head.dt[j], g[j]));
      ex = fma(head.w[j], q, ex);
      to_.d.row(at.first + j)[h] = inner(dy, x);
    }
    ex = add(ex, Real(0));
    const Real *ds = later_[h].values.data(), *state = s.values.data();
    const Real ss = r1024<Real>(
        shape_.state * p, [=](std::int64_t e, Real acc) { return fma(ds[e], state[e], acc); });
    dcs[rows - 1] = add(dcs[rows - 1], fma(head.el, ss, ex));
    Real sum = 0;
    for (std::int64_t j = rows; j-- > 0;) {
      sum = add(sum, dcs[j]);
      const std::int64_t i = at.first + j;
      const Real ddt =
          fma(mutant_("scan-dt-gradient-forgets-the-decay") ? Real(0) : head.a, sum, g[j]);
      const Real z = mul(ddt, sigmoid(add(in_.dt(i, h), in_.dt_bias[h])));
      to_.in_proj.row(i)[to_.in_proj.cols - shape_.heads + h] = Precision::st(z);
      to_.dt_bias.row(i)[h] = z;
      to_.a_log.row(i)[h] =
          mul(mutant_("scan-a-log-gradient-forgets-dt") ? sum : mul(head.dt[j], sum), head.a);
    }
  }

  Real inner(const Real* a, const Real* b) const {
    return r128<Real>(shape_.head_dim,
                      [=](std::int64_t e, Real acc) { return fma(a[e], b[e], acc); });
  }

  // kk_ij = kk_ij + (dy_i . xd_j) * Ld_ij
  void add_products(const HeadChunk<Precision>& head, const Matrix<Real>& ld, const Real* dy,
                    Matrix<Real>& kk) {
    const std::int64_t rows = head.rows, p = shape_.head_dim;
    const Matrix<Real> across = transposed(head.xd.values.data(), rows, p, p);
    Matrix<Real> products(rows, rows);
    dots<Precision>(rows, rows, p, Left<Real>{dy, dy_.cols, 1},
                    Right<Real>{across.values.data(), rows}, products.values.data(), rows,
                    Chain::whole);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j <= i; ++j)
        kk.row(i)[j] = add(kk.row(i)[j], mul(products.row(i)[j], ld.row(i)[j]));
    }
  }

  // Computes dS for the chunk before this one.
  void step_back(std::int64_t h, const HeadChunk<Precision>& head,
                 const GroupChunk<Precision>& group, const Matrix<Real>& dye) {
    Matrix<Real>& ds = later_[h];
    if (mutant_("scan-gradient-forgets-the-next-chunk")) return;
    Matrix<Real> gain(ds.rows, ds.cols);
    dots<Precision>(ds.rows, ds.cols, head.rows, Left<Real>{group.c, 1, group.stride},
                    Right<Real>{dye.values.data(), ds.cols}, gain.values.data(), ds.cols,
                    Chain::whole);
    for (std::size_t e = 0; e < ds.values.size(); ++e)
      ds.values[e] = fma(head.el, ds.values[e], gain.values[e]);
  }

  const ScanInput<Real>& in_;
  const ScanShape& shape_;
  const Matrix<Real>& dy_;
  ScanGradients<Real>& to_;
  Mutant mutant_;
  std::vector<std::vector<Matrix<Real>>> states_;  // [chunk][head]
  std::vector<Matrix<Real>> later_;                // dS per head at the end of the current chunk.
};

template <class Real>
struct ScanParameterGradients {
  std::vector<Real> dt_bias, a_log, d;
};

template <class Precision, class Real = typename Precision::Real>
ScanParameterGradients<Real> scan_gradient(const PackedBatch& pack, const ScanInput<Real>& in,
                                           const Matrix<Real>& dy, Matrix<Real>& dxbc,
                                           Matrix<Real>& d_in_proj, Mutant mutant) {
  const std::int64_t rows = pack.rows, heads = in.shape.heads;
  ScanGradients<Real> to{dxbc, d_in_proj, Matrix<Real>(rows, heads), Matrix<Real>(rows, heads),
                         Matrix<Real>(rows, heads)};
  ScanBackward<Precision> backward(in, dy, to, mutant);
  for (const Piece& document : scan_pieces(pack, mutant)) backward.run(document);
  const auto sum = [&](const Matrix<Real>& terms) {
    return column_sums<Real>(rows, heads, [&](std::int64_t i, std::int64_t h, Real p) {
      return add(p, terms.row(i)[h]);
    });
  };
  ScanParameterGradients<Real> sums{sum(to.dt_bias), sum(to.a_log), sum(to.d)};
  if (mutant("scan-d-gradient-is-one-chain")) {
    std::fill(sums.d.begin(), sums.d.end(), Real(0));
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t h = 0; h < heads; ++h) sums.d[h] = add(sums.d[h], to.d.row(i)[h]);
    }
  }
  return sums;
}

}  // namespace lockstep::oracle
