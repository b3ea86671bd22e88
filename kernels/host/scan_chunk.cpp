#include "kernels/host/scan_chunk.h"

#include <algorithm>

#include "kernels/core/fault.h"
#include "kernels/host/rows.h"

namespace lockstep {
namespace {
std::vector<float> make(std::int64_t count) { return std::vector<float>(count); }
}  // namespace

template <class T>
GroupChunk<T>::GroupChunk(const ScanShape& s) : b(make(s.q * s.n)), c(b), gm(make(s.q * s.q)) {}

template <class T>
void GroupChunk<T>::load(const ScanShape& s, In<T> xbc, std::int64_t group, std::int64_t first,
                         std::int64_t rows) {
  for (std::int64_t j = 0; j < rows; ++j) {
    load_row(s.n, xbc.row(first + j) + s.b_column(group), b.data() + j * s.n);
    load_row(s.n, xbc.row(first + j) + s.c_column(group), c.data() + j * s.n);
  }
  bt_.set(s.n, rows, b.data(), 1, s.n);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t whole_lanes = std::min(rows, (i / kLanes + 1) * kLanes);
    dot(s.n, c.data() + i * s.n, 1, bt_, gm.data() + i * s.q, whole_lanes);
  }
}

template <class T>
HeadChunk<T>::HeadChunk(const ScanShape& s)
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
void HeadChunk<T>::load(const ScanShape& s, In<T> xbc, In<T> raw_dt, std::int64_t head, float bias,
                        float a_log, const GroupChunk<T>& group, std::int64_t first,
                        std::int64_t rows) {
  a = neg(exp(a_log));
  const float linear_above = faulty("scan-long-time-steps-are-linear", infinity(), 12.0f);
  float sum = 0.0f;
  for (std::int64_t j = 0; j < rows; ++j) {
    const float raw = add(lockstep::load(raw_dt.row(first + j)[head]), bias);
    dt[j] = raw > linear_above ? raw : softplus(raw);
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
    for (std::int64_t p = 0; p < s.p; ++p)
      xd[j * s.p + p] = lockstep::load(st<T>(mul(row[p], dt[j])));
    for (std::int64_t p = 0; p < s.p; ++p)
      xw[j * s.p + p] = lockstep::load(st<T>(mul(row[p], w[j])));
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    float* ld = decay.data() + i * s.q;
    for (std::int64_t j = 0; j <= i; ++j) ld[j] = expn(sub(cs[i], cs[j]));
    for (std::int64_t j = 0; j <= i; ++j)
      m[i * s.q + j] = lockstep::load(st<T>(mul(group.gm[i * s.q + j], ld[j])));
  }
}

template <class T>
void HeadChunk<T>::outputs(const ScanShape& s, const GroupChunk<T>& group, const float* state,
                           std::int64_t rows) {
  state_.set(s.n, s.p, state, s.p, 1);
  factor_.set(rows, s.p, xd.data(), s.p, 1);
  for (std::int64_t i = 0; i < rows; ++i) {
    float* yi = y.data() + i * s.p;
    dot(s.n, group.c.data() + i * s.n, 1, state_, yi, s.p);
    for (std::int64_t p = 0; p < s.p; ++p) yi[p] = mul(yi[p], e[i]);
    factor_.link(0, i + 1, m.data() + i * s.q, 1, yi, s.p);
    add_zero(s.p, yi);
  }
}

template <class T>
void HeadChunk<T>::advance(const ScanShape& s, const GroupChunk<T>& group, const float* state,
                           std::int64_t rows, float* next) {
  const float kept = faulty("scan-state-without-decay", last_decay, 1.0f);
  factor_.set(rows, s.p, xw.data(), s.p, 1);
  for (std::int64_t n = 0; n < s.n; ++n) {
    dot(rows, group.b.data() + n, s.n, factor_, link_.data(), s.p);
    for (std::int64_t p = 0; p < s.p; ++p)
      next[n * s.p + p] = fma(kept, state[n * s.p + p], link_[p]);
  }
}

template struct GroupChunk<float>;
template struct GroupChunk<bf16>;
template struct HeadChunk<float>;
template struct HeadChunk<bf16>;

}  // namespace lockstep
