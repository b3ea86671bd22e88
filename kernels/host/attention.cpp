// 2.6: one chain per output. A row's scores are computed for its whole document at once; the kv
// blocks only matter where the softmax runs over them.
#include "kernels/ops/attention.h"

#include <algorithm>
#include <vector>

#include "kernels/core/fault.h"
#include "kernels/core/packed_documents.h"
#include "kernels/core/reduce.h"
#include "kernels/host/factor.h"
#include "kernels/host/raise_amax.h"
#include "kernels/host/rows.h"

namespace lockstep {
namespace {

constexpr std::int64_t kQueries =
    32;  // Query rows that the backward keeps at a time; a multiple of a k16 group.

// Scores are computed up to the next multiple of 32; what lies beyond the visible ones is never
// read.
std::int64_t padded(std::int64_t n) { return (n + 31) / 32 * 32; }

// Keys and values of one document and kv head: as factors over hd and, for sums over the document,
// over its rows.
template <class T>
struct KeysAndValues {
  std::int64_t hd, pitch;
  std::vector<float> keys, values;
  Factor<T> k, kt, v, vt;

  KeysAndValues(In<T> qkv, std::int64_t first, std::int64_t length, std::int64_t k_column,
                std::int64_t v_column, std::int64_t head_dim)
      : hd(head_dim), pitch(padded(length)) {
    keys.resize(length * hd);
    values.resize(keys.size());
    for (std::int64_t j = 0; j < length; ++j) {
      load_row(hd, qkv.row(first + j) + k_column, keys.data() + j * hd);
      load_row(hd, qkv.row(first + j) + v_column, values.data() + j * hd);
    }
    k.set(length, hd, keys.data(), hd, 1);
    kt.set(hd, length, keys.data(), 1, hd);
    v.set(length, hd, values.data(), hd, 1);
    vt.set(hd, length, values.data(), 1, hd);
  }
  // s[j] = mul(DOT over hd of q, k_j, scale) for j < count, rounded up.
  void scores(const float* q, std::int64_t count, float scale, float* s) const {
    dot(hd, q, 1, kt, s, padded(count));
    for (std::int64_t j = 0; j < padded(count); ++j) s[j] = mul(s[j], scale);
  }
};

// The softmax's denominator of one row, block by block. p holds the visible terms of a block.
template <class T>
class Denominator;

template <>
class Denominator<float> {
 public:
  static constexpr std::int64_t kBlock = 32;
  void scale_and_add(float al, const float* p, std::int64_t visible) {
    float t[kBlock];
    for (std::int64_t x = 0; x < kBlock; ++x) t[x] = x < visible ? p[x] : 0.0f;
    for (int off = 16; off > 0; off /= 2) {
      for (int x = 0; x < off; ++x) t[x] = add(t[x], t[x + off]);
    }
    l_ = fma(l_, al, t[0]);
  }
  float total() const { return add(l_, 0.0f); }

 private:
  float l_ = 0.0f;
};

template <>
class Denominator<bf16> {
 public:
  static constexpr std::int64_t kBlock = 128;
  void scale_and_add(float al, const float* p, std::int64_t visible) {
    for (float& l : l_) l = mul(l, al);
    for (std::int64_t j = 0; j < visible; ++j) l_[j % 8 / 2] = add(l_[j % 8 / 2], p[j]);
  }
  float total() const { return add(add(add(l_[0], l_[1]), add(l_[2], l_[3])), 0.0f); }

 private:
  float l_[4] = {};
};

// Online softmax over the blocks of one row that sees `count` keys. Returns LSE; o is the finished,
// unstored output.
template <class T>
float softmax_row(const KeysAndValues<T>& kv, float* s, std::int64_t count, float* o) {
  constexpr std::int64_t kBlock = Denominator<T>::kBlock;
  Denominator<T> denominator;
  const float smallest = faulty("attention-flushes-small-weights", 0.0f, 0x1p-20f);
  float m = neg(infinity());
  set_zero(kv.hd, o);
  for (std::int64_t first = 0; first < count; first += kBlock) {
    float* p = s + first;
    const std::int64_t visible = std::min(kBlock, count - first);
    const float next = add(max(m, maximum(visible, [p](std::int64_t j) { return p[j]; })), 0.0f);
    const float al = expn(sub(m, next));
    for (std::int64_t j = 0; j < visible; ++j) {
      const float weight = expn(sub(p[j], next));
      p[j] = weight < smallest ? 0.0f : weight;
    }
    denominator.scale_and_add(al, p, visible);
    const float kept = faulty("attention-forgets-rescale-between-blocks", al, 1.0f);
    for (std::int64_t e = 0; e < kv.hd; ++e) o[e] = mul(o[e], kept);
    round_row<T>(visible, p);
    kv.v.link(first, first + visible, s, 1, o, kv.hd);
    m = next;
  }
  const float l = denominator.total();
  add_zero(kv.hd, o);
  const float inverse = div(1.0f, l);
  for (std::int64_t e = 0; e < kv.hd; ++e) o[e] = mul(o[e], inverse);
  return add(m, log(l));
}

float scale_of(std::int64_t head_dim) {
  const auto width = static_cast<float>(head_dim);
  return div(1.0f, faulty("attention-scale-forgets-the-root", sqrt(width), width));
}

// Gradients of one document and kv head. Blocks of query rows keep their stored p and ds, so that
// dV and dK continue their chains over i asc with registers instead of memory.
template <class T>
class KvHeadBackward {
 public:
  KvHeadBackward(const AttentionBackward<T>& op, std::int64_t first, std::int64_t length,
                 std::int64_t kv_head)
      : op_(op),
        first_(first),
        length_(length),
        kv_head_(kv_head),
        hd_(op.head_dim),
        group_(op.heads / op.kv_heads),
        k_column_((op.heads + kv_head) * hd_),
        v_column_((op.heads + op.kv_heads + kv_head) * hd_),
        kv_(op.qkv, first, length, k_column_, v_column_, hd_),
        scale_(scale_of(hd_)),
        p_(kQueries * kv_.pitch),
        ds_(p_.size()),
        q_(kQueries * hd_),
        dout_(q_.size()),
        row_(std::max(hd_, kv_.pitch)),
        dk_(length * hd_),
        dv_(dk_.size()) {}

  void run() {
    const std::int64_t heads = faulty("attention-backward-forgets-query-heads-of-group", group_, 1);
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < length_; i += kQueries) {
        rows(kv_head_ * group_ + h, i, std::min(kQueries, length_ - i));
      }
    }
    const float scale = faulty("attention-backward-forgets-key-scale", scale_, 1.0f);
    for (std::int64_t j = 0; j < length_; ++j) {
      float* dk = dk_.data() + j * hd_;
      add_zero(hd_, dk);
      add_zero(hd_, dv_.data() + j * hd_);
      for (std::int64_t e = 0; e < hd_; ++e) dk[e] = mul(dk[e], scale);
      store_row(hd_, dk, op_.dqkv.row(first_ + j) + k_column_);
      store_row(hd_, dv_.data() + j * hd_, op_.dqkv.row(first_ + j) + v_column_);
    }
  }

 private:
  // Query rows [begin, begin + count) of one head.
  void rows(std::int64_t head, std::int64_t begin, std::int64_t count) {
    for (std::int64_t r = 0; r < count; ++r) query_row(head, begin + r, r);
    dout_factor_.set(count, hd_, dout_.data(), hd_, 1);
    q_factor_.set(count, hd_, q_.data(), hd_, 1);
    for (std::int64_t j = 0; j < begin + count; ++j) {
      const std::int64_t from = std::max<std::int64_t>(0, j - begin);
      dout_factor_.link(from, count, p_.data() + j, kv_.pitch, dv_.data() + j * hd_, hd_);
      q_factor_.link(from, count, ds_.data() + j, kv_.pitch, dk_.data() + j * hd_, hd_);
    }
  }
  // p, ds and dQ of row i of the document; r is its place in the block.
  void query_row(std::int64_t head, std::int64_t i, std::int64_t r) {
    const std::int64_t row = first_ + i, visible = i + 1;
    float* q = q_.data() + r * hd_;
    float* dout = dout_.data() + r * hd_;
    float* p = p_.data() + r * kv_.pitch;
    float* ds = ds_.data() + r * kv_.pitch;
    load_row(hd_, op_.qkv.row(row) + head * hd_, q);
    load_row(hd_, op_.dout.row(row) + head * hd_, dout);
    const T* o = op_.o.row(row) + head * hd_;
    const float delta =
        r128(hd_, [o, dout](std::int64_t e, float acc) { return fma(load(o[e]), dout[e], acc); });
    op_.delta.row(row)[head] = delta;
    const float subtracted = faulty("attention-backward-forgets-delta", delta, 0.0f);
    const float lse = op_.lse.row(row)[head];
    kv_.scores(q, visible, scale_, p);
    for (std::int64_t j = 0; j < visible; ++j) p[j] = expn(sub(p[j], lse));
    dot(hd_, dout, 1, kv_.vt, ds, padded(visible));
    for (std::int64_t j = 0; j < visible; ++j) ds[j] = mul(p[j], sub(ds[j], subtracted));
    round_row<T>(visible, ds);
    round_row<T>(visible, p);
    dot(visible, ds, 1, kv_.k, row_.data(), hd_);
    for (std::int64_t e = 0; e < hd_; ++e) row_[e] = mul(row_[e], scale_);
    store_row(hd_, row_.data(), op_.dqkv.row(row) + head * hd_);
  }

  const AttentionBackward<T>& op_;
  std::int64_t first_, length_, kv_head_, hd_, group_, k_column_, v_column_;
  KeysAndValues<T> kv_;
  Factor<T> dout_factor_, q_factor_;
  float scale_;
  std::vector<float> p_, ds_, q_, dout_, row_, dk_, dv_;
};

template <class T>
KeysAndValues<T> keys_of_head(const AttentionForward<T>& op, std::int64_t first,
                              std::int64_t length, std::int64_t kv_head) {
  const std::int64_t source = faulty("attention-query-heads-share-first-kv-head", kv_head, 0);
  const std::int64_t k_column = (op.heads + source) * op.head_dim;
  return {op.qkv, first, length, k_column, k_column + op.kv_heads * op.head_dim, op.head_dim};
}

}  // namespace

template <class T>
void run(HostQueue, const AttentionForward<T>& op) {
  const std::int64_t hd = op.head_dim, group = op.heads / op.kv_heads;
  const float scale = scale_of(hd);
  const std::int64_t ahead = faulty("attention-sees-the-next-token", 0, 1);
  const std::int64_t reach = faulty("attention-leaks-previous-document", 0, 1);
  for (std::int64_t i = 0; i < op.qkv.rows; ++i) {
    if (op.row_document.data[i] >= 0) continue;
    store_zero(op.o.cols, op.o.row(i));
    store_zero(op.lse.cols, op.lse.row(i));
  }
  std::vector<float> s, q(hd), o(q);
  for (std::int64_t d = 0; d < slots_of(op); ++d) {
    if (tokens_of(op, d) <= 0) continue;
    const std::int64_t own = first_row_of(op, d);
    const std::int64_t before = own > 0 && op.row_document.data[own - 1] >= 0 ? reach : 0;
    const std::int64_t first = own - before, length = tokens_of(op, d) + before;
    s.resize(padded(length));
    for (std::int64_t kv_head = 0; kv_head < op.kv_heads; ++kv_head) {
      const KeysAndValues<T> kv = keys_of_head(op, first, length, kv_head);
      for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        for (std::int64_t i = before; i < length; ++i) {
          const std::int64_t visible = std::min(length, i + 1 + ahead);
          load_row(hd, op.qkv.row(first + i) + h * hd, q.data());
          kv.scores(q.data(), visible, scale, s.data());
          op.lse.row(first + i)[h] = softmax_row(kv, s.data(), visible, o.data());
          store_row(hd, o.data(), op.o.row(first + i) + h * hd);
        }
      }
    }
  }
  raise_amax(op, op.o);
}

template <class T>
void run(HostQueue, const AttentionBackward<T>& op) {
  const std::int64_t cleared = faulty("attention-backward-keeps-padding-rows", op.dqkv.cols, 0);
  for (std::int64_t i = 0; i < op.qkv.rows; ++i) {
    if (op.row_document.data[i] < 0) store_zero(cleared, op.dqkv.row(i));
  }
  for (std::int64_t d = 0; d < slots_of(op); ++d) {
    const std::int64_t length = tokens_of(op, d);
    for (std::int64_t kv_head = 0; length > 0 && kv_head < op.kv_heads; ++kv_head) {
      KvHeadBackward<T>(op, first_row_of(op, d), length, kv_head).run();
    }
  }
}

template void run(HostQueue, const AttentionForward<float>&);
template void run(HostQueue, const AttentionForward<bf16>&);
template void run(HostQueue, const AttentionBackward<float>&);
template void run(HostQueue, const AttentionBackward<bf16>&);

}  // namespace lockstep
