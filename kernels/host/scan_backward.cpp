#include <algorithm>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/core/packed_documents.h"
#include "kernels/core/reduce.h"
#include "kernels/host/chain.h"
#include "kernels/host/raise_amax.h"
#include "kernels/host/rows.h"
#include "kernels/host/scan_chunk.h"
#include "kernels/ops/scan.h"

namespace lockstep {
namespace {

// One chunk after the other, documents' last chunk first. The letters are those of 2.8.
template <class T>
class ScanReverse {
 public:
  explicit ScanReverse(const ScanBackward<T>& op)
      : op_(op),
        s_(scan_shape(op)),
        group_(s_),
        head_(s_),
        pq_(s_.p * s_.q),
        t_(pq_),
        xa_(pq_),
        dy_(pq_),
        dye_(pq_),
        dcs_(s_.q),
        g_(s_.q),
        kk_(s_.q * s_.q),
        dot_(std::max(s_.q, s_.p)),
        db_(s_.q * s_.n),
        dc_(s_.q * s_.n) {}

  // The states at every chunk's start, by the forward's expressions.
  void recompute_states() {
    for (std::int64_t c = 0; c < chunks() && op_.chunk_document.data[c] >= 0; ++c) {
      if (starts(c)) set_zero(op_.states.cols, op_.states.row(c));
      if (!continues(c)) continue;
      for (std::int64_t h = 0; h < s_.heads; ++h) {
        load(c, h);
        head_.advance(s_, group_, state(op_.states, c, h), rows(c), state(op_.states, c + 1, h));
      }
    }
  }
  // dstates[c] is dS at the end of chunk c.
  void run() {
    std::int64_t count = 0;
    while (count < chunks() && op_.chunk_document.data[count] >= 0) ++count;
    for (std::int64_t c = count - 1; c >= 0; --c) {
      if (!continues(c)) set_zero(op_.dstates.cols, op_.dstates.row(c));
      for (std::int64_t h = 0; h < s_.heads; ++h) head(c, h);
    }
  }

 private:
  std::int64_t chunks() const { return op_.chunk_document.cols; }
  std::int64_t first(std::int64_t c) const { return op_.chunk_start.data[c]; }
  std::int64_t rows(std::int64_t c) const { return op_.chunk_rows.data[c]; }
  bool starts(std::int64_t c) const {
    return first(c) == first_row_of(op_, op_.chunk_document.data[c]);
  }
  bool continues(std::int64_t c) const {
    return c + 1 < chunks() && op_.chunk_document.data[c + 1] == op_.chunk_document.data[c];
  }
  float* state(Scratch<float> states, std::int64_t c, std::int64_t h) const {
    return states.row(c) + h * s_.state_size();
  }
  void load(std::int64_t c, std::int64_t h) {
    if (h % per_group() == 0) group_.load(s_, op_.xbc, s_.group_of(h), first(c), rows(c));
    head_.load(s_, op_.xbc, op_.dt, h, op_.dt_bias.data[h], op_.a_log.data[h], group_, first(c),
               rows(c));
  }
  std::int64_t per_group() const { return s_.heads / s_.groups; }

  void head(std::int64_t c, std::int64_t h) {
    load(c, h);
    if (h % per_group() == 0) start_group();
    const std::int64_t nr = rows(c);
    const float* s0 = state(op_.states, c, h);
    const float* ds = state(op_.dstates, c, h);
    for (std::int64_t i = 0; i < nr; ++i) {
      load_row(s_.p, op_.dy.row(first(c) + i) + h * s_.p, dy_.data() + i * s_.p);
      for (std::int64_t p = 0; p < s_.p; ++p) {
        dye_[i * s_.p + p] = lockstep::load(st<T>(mul(dy_[i * s_.p + p], head_.e[i])));
      }
    }
    input_gradient(c, h, ds);
    step_gradient(c, h, s0, ds);
    group_terms(nr, s0, ds);
    if (h % per_group() == per_group() - 1) finish_group(c, h);
    if (c > 0 && op_.chunk_document.data[c - 1] == op_.chunk_document.data[c]) retreat(c, h, ds);
  }
  void start_group() {
    std::fill(kk_.begin(), kk_.end(), 0.0f);
    std::fill(db_.begin(), db_.end(), 0.0f);
    std::fill(dc_.begin(), dc_.end(), 0.0f);
  }
  // t, xa and dx of every row.
  void input_gradient(std::int64_t c, std::int64_t h, const float* ds) {
    const std::int64_t nr = rows(c), width = s_.p;
    const float d = op_.d.data[h];
    state_.set(s_.n, width, ds, width, 1);
    factor_.set(nr, width, dy_.data(), width, 1);
    for (std::int64_t j = 0; j < nr; ++j) {
      float* t = t_.data() + j * width;
      float* xa = xa_.data() + j * width;
      dot(s_.n, group_.b.data() + j * s_.n, 1, state_, t, width);
      for (std::int64_t p = 0; p < width; ++p) xa[p] = mul(t[p], head_.r[j]);
      factor_.link(j, nr, head_.m.data() + j, s_.q, xa, width);
      add_zero(width, xa);
      T* dx = op_.dxbc.row(first(c) + j) + h * width;
      const float* dy = dy_.data() + j * width;
      for (std::int64_t p = 0; p < width; ++p)
        dx[p] = st<T>(fma(d, dy[p], mul(xa[p], head_.dt[j])));
    }
  }
  float dot128(const float* a, const float* b) const {
    return r128(s_.p, [a, b](std::int64_t p, float acc) { return fma(a[p], b[p], acc); });
  }
  // d(dtr) and the row terms of ddt_bias, dA_log and dD.
  void step_gradient(std::int64_t c, std::int64_t h, const float* s0, const float* ds) {
    const std::int64_t nr = rows(c), width = s_.p;
    head_.outputs(s_, group_, s0, nr);
    float ex = 0.0f;
    for (std::int64_t j = 0; j < nr; ++j) {
      const float* x = head_.x.data() + j * width;
      g_[j] = dot128(x, xa_.data() + j * width);
      const float hj = dot128(dy_.data() + j * width, head_.y.data() + j * width);
      dcs_[j] = sub(hj, mul(head_.dt[j], g_[j]));
      ex = fma(head_.w[j], dot128(x, t_.data() + j * width), ex);
    }
    const float ss = r1024(s_.state_size(),
                           [ds, s0](std::int64_t e, float acc) { return fma(ds[e], s0[e], acc); });
    const float end = fma(head_.last_decay, ss, add(ex, 0.0f));
    dcs_[nr - 1] = add(dcs_[nr - 1], faulty("scan-backward-forgets-chunk-end", end, 0.0f));
    float s = 0.0f;
    for (std::int64_t j = nr - 1; j >= 0; --j) {
      const std::int64_t row = first(c) + j;
      s = add(s, dcs_[j]);
      const float ddt = fma(head_.a, s, g_[j]);
      const float z =
          mul(ddt, sigmoid(add(lockstep::load(op_.dt.row(row)[h]), op_.dt_bias.data[h])));
      op_.ddt.row(row)[h] = st<T>(z);
      op_.rows.row(row)[h] = z;
      op_.rows.row(row)[s_.heads + h] = mul(mul(head_.dt[j], s), head_.a);
      op_.rows.row(row)[2 * s_.heads + h] =
          dot128(dy_.data() + j * width, head_.x.data() + j * width);
    }
  }
  // Adds this head's part to KK and to the chains of dC and dB.
  void group_terms(std::int64_t nr, const float* s0, const float* ds) {
    factor_.set(s_.p, nr, head_.xd.data(), 1, s_.p);
    for (std::int64_t i = 0; i < nr; ++i) {
      dot(s_.p, dy_.data() + i * s_.p, 1, factor_, dot_.data(), i + 1);
      float* kk = kk_.data() + i * s_.q;
      const float* decay = head_.decay.data() + i * s_.q;
      for (std::int64_t j = 0; j <= i; ++j) kk[j] = add(kk[j], mul(dot_[j], decay[j]));
    }
    state_.set(s_.p, s_.n, s0, 1, s_.p);
    for (std::int64_t i = 0; i < nr; ++i) {
      state_.link(0, s_.p, dye_.data() + i * s_.p, 1, dc_.data() + i * s_.n, s_.n);
    }
    state_.set(s_.p, s_.n, ds, 1, s_.p);
    for (std::int64_t j = 0; j < nr; ++j) {
      state_.link(0, s_.p, head_.xw.data() + j * s_.p, 1, db_.data() + j * s_.n, s_.n);
    }
  }
  void finish_group(std::int64_t c, std::int64_t h) {
    const std::int64_t nr = rows(c), group = s_.group_of(h);
    for (std::int64_t i = 0; i < nr; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        float& kk = at(kk_, i * s_.q + j);
        kk = lockstep::load(st<T>(add(kk, 0.0f)));
      }
    }
    factor_.set(nr, s_.n, group_.b.data(), s_.n, 1);
    state_.set(nr, s_.n, group_.c.data(), s_.n, 1);
    for (std::int64_t i = 0; i < nr; ++i) {
      float* dc = dc_.data() + i * s_.n;
      const std::int64_t count = faulty("scan-backward-forgets-intra-chunk-dc", i + 1, 0);
      factor_.link(0, count, kk_.data() + i * s_.q, 1, dc, s_.n);
      add_zero(s_.n, dc);
      store_row(s_.n, dc, op_.dxbc.row(first(c) + i) + s_.c_column(group));
      float* db = db_.data() + i * s_.n;
      state_.link(i, nr, kk_.data() + i, s_.q, db, s_.n);
      add_zero(s_.n, db);
      store_row(s_.n, db, op_.dxbc.row(first(c) + i) + s_.b_column(group));
    }
  }
  // dS of the previous chunk.
  void retreat(std::int64_t c, std::int64_t h, const float* ds) {
    float* previous = state(op_.dstates, c - 1, h);
    const float decay = faulty("scan-backward-drops-state-gradient", head_.last_decay, 0.0f);
    factor_.set(rows(c), s_.p, dye_.data(), s_.p, 1);
    for (std::int64_t n = 0; n < s_.n; ++n) {
      dot(rows(c), group_.c.data() + n, s_.n, factor_, dot_.data(), s_.p);
      for (std::int64_t p = 0; p < s_.p; ++p) {
        previous[n * s_.p + p] = fma(decay, ds[n * s_.p + p], dot_[p]);
      }
    }
  }

  const ScanBackward<T>& op_;
  ScanShape s_;
  GroupChunk<T> group_;
  HeadChunk<T> head_;
  Factor<T> factor_, state_;
  std::int64_t pq_;
  std::vector<float> t_, xa_, dy_, dye_, dcs_, g_, kk_, dot_, db_, dc_;
};

}  // namespace

template <class T>
void run(HostQueue, const ScanBackward<T>& op) {
  for (std::int64_t i = 0; i < op.dy.rows; ++i) {
    if (op.row_document.data[i] >= 0) continue;
    store_zero(op.dxbc.cols, op.dxbc.row(i));
    store_zero(op.ddt.cols, op.ddt.row(i));
  }
  ScanReverse<T> reverse(op);
  reverse.recompute_states();
  reverse.run();
  const std::int64_t heads = op.heads;
  std::vector<float> sums(3 * heads);
  column_sums(op.dy.rows, 3 * heads, sums.data(), [&](std::int64_t i, float* p) {
    if (op.row_document.data[i] < 0) return;
    const float* row = op.rows.row(i);
    for (std::int64_t k = 0; k < 3 * heads; ++k) p[k] = add(p[k], row[k]);
  });
  std::copy_n(sums.data(), heads, op.ddt_bias.data);
  std::copy_n(sums.data() + heads, heads, op.da_log.data);
  std::copy_n(sums.data() + 2 * heads, heads, op.dd.data);
  add_to_total(op.ddt_bias, op.dt_bias_total);
  add_to_total(op.da_log, op.a_log_total);
  add_to_total(op.dd, op.d_total);
  raise_amax(op, op.ddt);
}

template void run(HostQueue, const ScanBackward<float>&);
template void run(HostQueue, const ScanBackward<bf16>&);

}  // namespace lockstep
