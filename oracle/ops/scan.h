// The forward pass of the Mamba-2 scan, one document after the other (arithmetic.md 2.8).
#pragma once

#include "oracle/ops/scan_chunk.h"

namespace lockstep::oracle {

// y is [T, heads * head_dim].
template <class Precision, class Real = typename Precision::Real>
void scan(const PackedBatch& pack, const ScanInput<Real>& in, Matrix<Real>& y, Mutant mutant) {
  const ScanShape& shape = in.shape;
  for (const Piece& document : scan_pieces(pack, mutant)) {
    std::vector<Matrix<Real>> states(shape.heads, Matrix<Real>(shape.state, shape.head_dim));
    for (const ChunkRows at : chunks_of(document, shape.chunk, mutant)) {
      Matrix<Real> gm;
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        const GroupChunk<Precision> group(in, at, group_of(shape, h, mutant));
        if (h % shape.group_heads() == 0) gm = group.products();
        const HeadChunk<Precision> head(in, at, h, mutant);
        const Matrix<Real> m = decayed<Precision>(gm, head.decays(mutant));
        const Matrix<Real> sums =
            scan_sums<Precision>(head, group, m, stored<Precision>(states[h]), mutant);
        const Real skip = mutant("scan-forgets-the-skip") ? Real(0) : in.d[h];
        for (std::int64_t i = 0; i < at.rows; ++i) {
          Real* to = y.row(at.first + i) + h * shape.head_dim;
          const Real* x = in.x(at.first + i, h);
          for (std::int64_t p = 0; p < shape.head_dim; ++p)
            to[p] = Precision::st(fma(skip, x[p], sums.row(i)[p]));
        }
        advance_state<Precision>(head, group, states[h]);
      }
    }
  }
}

}  // namespace lockstep::oracle
