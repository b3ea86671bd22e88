// One chunk of 2.8: the quantities that forward and backward share, computed by the same
// expressions.
#pragma once

#include <vector>

#include "kernels/host/factor.h"
#include "kernels/ops/scan.h"

namespace lockstep {

struct ScanShape {
  std::int64_t heads, groups, n, p, q;  // Heads, groups, state N, head width P, chunk length Q.
  std::int64_t d_inner() const { return heads * p; }
  std::int64_t state_size() const { return n * p; }
  std::int64_t group_of(std::int64_t head) const { return head / (heads / groups); }
  std::int64_t b_column(std::int64_t group) const { return d_inner() + group * n; }
  std::int64_t c_column(std::int64_t group) const { return d_inner() + (groups + group) * n; }
};

template <class Op>
ScanShape scan_shape(const Op& op) {
  return {op.heads, op.groups, op.state, (op.xbc.cols - 2 * op.groups * op.state) / op.heads,
          op.chunk};
}

// B, C and their products Gm, shared by the heads of a group. Rows are local to the chunk.
template <class T>
struct GroupChunk {
  explicit GroupChunk(const ScanShape& s);
  void load(const ScanShape& s, In<T> xbc, std::int64_t group, std::int64_t first,
            std::int64_t rows);

  std::vector<float> b, c;  // [Q, N]
  std::vector<float> gm;    // [Q, Q], j <= i
 private:
  Factor<T> bt_;  // B(n, j)
};

// The values of one head in a chunk that do not depend on the state before it.
template <class T>
struct HeadChunk {
  explicit HeadChunk(const ScanShape& s);
  // `bias`, `a_log`: of this head. M needs the group's Gm.
  void load(const ScanShape& s, In<T> xbc, In<T> raw_dt, std::int64_t head, float bias, float a_log,
            const GroupChunk<T>& group, std::int64_t first, std::int64_t rows);
  // y~ of every row: the state's share, then j asc.
  void outputs(const ScanShape& s, const GroupChunk<T>& group, const float* state,
               std::int64_t rows);
  // next = fma(eL, S, DOT over j of B_j, xw_j).
  void advance(const ScanShape& s, const GroupChunk<T>& group, const float* state,
               std::int64_t rows, float* next);

  float a = 0, last_decay = 0;         // A and eL.
  std::vector<float> dt, cs, e, r, w;  // [Q]
  std::vector<float> x, xd, xw, y;     // [Q, P]; y is y~.
  std::vector<float> decay, m;         // [Q, Q]: Ld and M, j <= i.

 private:
  std::vector<float> link_;
  Factor<T> factor_, state_;
};

}  // namespace lockstep
