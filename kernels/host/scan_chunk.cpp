#include "kernels/host/scan_chunk.h"

#include <algorithm>

#include "kernels/host/chain.h"
#include "kernels/host/rows.h"

namespace lockstep {
namespace {
std::vector<float> make(std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count)); }
}  // namespace

GroupChunk::GroupChunk(const ScanShape& s) : b(make(s.q * s.n)), c(b), gm(make(s.q * s.q)), bt_(b) {}

template <class T>
void GroupChunk::load(const ScanShape& s, In<T> xbc, std::int64_t group, std::int64_t first, std::int64_t rows) {
  for (std::int64_t j = 0; j < rows; ++j) {
    load_row(s.n, xbc.row(first + j) + s.b_column(group), b.data() + j * s.n);
    load_row(s.n, xbc.row(first + j) + s.c_column(group), c.data() + j * s.n);
  }
  transpose(rows, s.n, b.data(), s.n, bt_.data(), s.q);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t whole_lanes = std::min(rows, (i / kLanes + 1) * kLanes);
    dot_row(whole_lanes, s.n, c.data() + i * s.n, 1, bt_.data(), s.q, gm.data() + i * s.q);
  }
}

HeadChunk::HeadChunk(const ScanShape& s)
    : dt(make(s.q)),
      cs(dt),
      e(dt),
      r(dt),
      w(dt),
      x(make(s.q * s.p)),
      xd(x),
      xw(x),
      y(x),
      decay(make(s.q * s.q)),
      m(decay),
      link_(make(s.p)) {}

template <class T>
void HeadChunk::load(const ScanShape& s, In<T> xbc, In<T> raw_dt, std::int64_t head, float bias, float a_log,
                     const GroupChunk& group, std::int64_t first, std::int64_t rows) {
  a = neg(exp(a_log));
  float sum = 0.0f;
  for (std::int64_t j = 0; j < rows; ++j) {
    dt[j] = softplus(add(lockstep::load(raw_dt.row(first + j)[head]), bias));
    sum = fma(dt[j], a, sum);
    cs[j] = sum;
  }
  for (std::int64_t j = 0; j < rows; ++j) {
    e[j] = expn(cs[j]);
    r[j] = expn(sub(sum, cs[j]));
    w[j] = mul(r[j], dt[j]);
  }
  last_decay = expn(sum);
  for (std::int64_t j = 0; j < rows; ++j) {
    float* row = x.data() + j * s.p;
    load_row(s.p, xbc.row(first + j) + head * s.p, row);
    for (std::int64_t p = 0; p < s.p; ++p) xd[j * s.p + p] = lockstep::load(st<T>(mul(row[p], dt[j])));
    for (std::int64_t p = 0; p < s.p; ++p) xw[j * s.p + p] = lockstep::load(st<T>(mul(row[p], w[j])));
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    float* ld = decay.data() + i * s.q;
    for (std::int64_t j = 0; j <= i; ++j) ld[j] = expn(sub(cs[i], cs[j]));
    for (std::int64_t j = 0; j <= i; ++j) m[i * s.q + j] = lockstep::load(st<T>(mul(group.gm[i * s.q + j], ld[j])));
  }
}

void HeadChunk::outputs(const ScanShape& s, const GroupChunk& group, const float* state, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows; ++i) {
    float* yi = y.data() + i * s.p;
    dot_row(s.p, s.n, group.c.data() + i * s.n, 1, state, s.p, yi);
    for (std::int64_t p = 0; p < s.p; ++p) yi[p] = mul(yi[p], e[i]);
    chain_row(s.p, i + 1, m.data() + i * s.q, 1, xd.data(), s.p, yi);
    add_zero(s.p, yi);
  }
}

void HeadChunk::advance(const ScanShape& s, const GroupChunk& group, const float* state, std::int64_t rows, float* next,
                        const ScanFaults& faults) {
  const float kept = faults.undecayed ? 1.0f : last_decay;
  for (std::int64_t n = 0; n < s.n; ++n) {
    dot_row(s.p, rows, group.b.data() + n, s.n, xw.data(), s.p, link_.data());
    for (std::int64_t p = 0; p < s.p; ++p) next[n * s.p + p] = fma(kept, state[n * s.p + p], link_[p]);
  }
}

template void GroupChunk::load(const ScanShape&, In<float>, std::int64_t, std::int64_t, std::int64_t);
template void HeadChunk::load(const ScanShape&, In<float>, In<float>, std::int64_t, float, float, const GroupChunk&,
                              std::int64_t, std::int64_t);

}  // namespace lockstep
