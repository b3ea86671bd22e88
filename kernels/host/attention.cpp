// The fp32 form of 2.6: kv blocks of 32, one chain per output. A row's scores are computed for its whole document at
// once; the blocks only matter where the softmax runs over them.
#include "kernels/attention.h"

#include <algorithm>
#include <vector>

#include "kernels/fault.h"
#include "kernels/host/chain.h"
#include "kernels/host/rows.h"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

constexpr std::int64_t kBlock = 32;

std::int64_t padded(std::int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

// Keys and values of one document and kv head: transposed for dots over hd, as rows for sums over the document.
struct KeysAndValues {
  std::int64_t hd, pitch;  // Columns at and after the document's length are +0 and are computed but never read.
  std::vector<float> k, kt, v, vt;

  template <class T>
  KeysAndValues(In<T> qkv, std::int64_t first, std::int64_t length, std::int64_t k_column, std::int64_t v_column,
                std::int64_t head_dim)
      : hd(head_dim), pitch(padded(length)) {
    k.resize(static_cast<std::size_t>(length * hd));
    v.resize(k.size());
    kt.resize(static_cast<std::size_t>(pitch * hd));
    vt.resize(kt.size());
    for (std::int64_t j = 0; j < length; ++j) {
      load_row(hd, qkv.row(first + j) + k_column, k.data() + j * hd);
      load_row(hd, qkv.row(first + j) + v_column, v.data() + j * hd);
    }
    transpose(length, hd, k.data(), hd, kt.data(), pitch);
    transpose(length, hd, v.data(), hd, vt.data(), pitch);
  }
  // s[j] = mul(DOT over hd of q, k_j, scale) for j < count, rounded up to a block.
  void scores(const float* q, std::int64_t count, float scale, float* s) const {
    dot_row(padded(count), hd, q, 1, kt.data(), pitch, s);
    for (std::int64_t j = 0; j < padded(count); ++j) s[j] = mul(s[j], scale);
  }
};

float halving_tree(const float* p) {
  float t[kBlock];
  for (int x = 0; x < 16; ++x) t[x] = add(p[x], p[x + 16]);
  for (int off = 8; off > 0; off /= 2) {
    for (int x = 0; x < off; ++x) t[x] = add(t[x], t[x + off]);
  }
  return t[0];
}

// Online softmax over the blocks of one row that sees `count` keys. Returns LSE; o is the finished, unstored output.
float softmax_row(const KeysAndValues& kv, float* s, std::int64_t count, bool forgets_rescale, float* o) {
  float m = neg(infinity()), l = 0.0f;
  set_zero(kv.hd, o);
  for (std::int64_t first = 0; first < count; first += kBlock) {
    float* p = s + first;
    const std::int64_t visible = std::min(kBlock, count - first);
    const float next = add(max(m, maximum(visible, [p](std::int64_t j) { return p[j]; })), 0.0f);
    const float al = expn(sub(m, next));
    for (std::int64_t j = 0; j < kBlock; ++j) p[j] = j < visible ? expn(sub(p[j], next)) : 0.0f;
    l = fma(l, al, halving_tree(p));
    for (std::int64_t e = 0; e < kv.hd && !forgets_rescale; ++e) o[e] = mul(o[e], al);
    chain_row(kv.hd, visible, p, 1, kv.v.data() + first * kv.hd, kv.hd, o);
    m = next;
  }
  l = add(l, 0.0f);
  add_zero(kv.hd, o);
  const float inverse = div(1.0f, l);
  for (std::int64_t e = 0; e < kv.hd; ++e) o[e] = mul(o[e], inverse);
  return add(m, log(l));
}

float scale_of(std::int64_t head_dim) { return div(1.0f, sqrt(static_cast<float>(head_dim))); }

// Gradients of one document and kv head. Blocks of 32 query rows keep their p and ds, so that dV and dK continue
// their chains over i asc with registers instead of memory.
template <class T>
class KvHeadBackward {
 public:
  KvHeadBackward(const AttentionBackward<T>& op, std::int64_t first, std::int64_t length, std::int64_t kv_head)
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
        p_(static_cast<std::size_t>(kBlock * kv_.pitch)),
        ds_(p_.size()),
        q_(static_cast<std::size_t>(kBlock * hd_)),
        dout_(q_.size()),
        row_(static_cast<std::size_t>(std::max(hd_, kv_.pitch))),
        dk_(static_cast<std::size_t>(length * hd_)),
        dv_(dk_.size()) {}

  void run() {
    const bool first_head_only = fault("attention-backward-forgets-query-heads-of-group");
    for (std::int64_t h = 0; h < (first_head_only ? 1 : group_); ++h) {
      for (std::int64_t i = 0; i < length_; i += kBlock) rows(kv_head_ * group_ + h, i, std::min(kBlock, length_ - i));
    }
    const bool forgets_scale = fault("attention-backward-forgets-key-scale");
    for (std::int64_t j = 0; j < length_; ++j) {
      float* dk = dk_.data() + j * hd_;
      add_zero(hd_, dk);
      add_zero(hd_, dv_.data() + j * hd_);
      for (std::int64_t e = 0; e < hd_ && !forgets_scale; ++e) dk[e] = mul(dk[e], scale_);
      store_row(hd_, dk, op_.dqkv.row(first_ + j) + k_column_);
      store_row(hd_, dv_.data() + j * hd_, op_.dqkv.row(first_ + j) + v_column_);
    }
  }

 private:
  // Query rows [begin, begin + count) of one head.
  void rows(std::int64_t head, std::int64_t begin, std::int64_t count) {
    for (std::int64_t r = 0; r < count; ++r) query_row(head, begin + r, r);
    for (std::int64_t j = 0; j < begin + count; ++j) {
      const std::int64_t from = std::max<std::int64_t>(0, j - begin);
      chain_row(hd_, count - from, p_.data() + from * kv_.pitch + j, kv_.pitch, dout_.data() + from * hd_, hd_,
                dv_.data() + j * hd_);
      chain_row(hd_, count - from, ds_.data() + from * kv_.pitch + j, kv_.pitch, q_.data() + from * hd_, hd_,
                dk_.data() + j * hd_);
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
    const float delta = r128(hd_, [o, dout](std::int64_t e, float acc) { return fma(load(o[e]), dout[e], acc); });
    op_.delta.row(row)[head] = delta;
    const float lse = op_.lse.row(row)[head];
    kv_.scores(q, visible, scale_, p);
    for (std::int64_t j = 0; j < visible; ++j) p[j] = expn(sub(p[j], lse));
    dot_row(padded(visible), hd_, dout, 1, kv_.vt.data(), kv_.pitch, ds);
    for (std::int64_t j = 0; j < visible; ++j) ds[j] = mul(p[j], sub(ds[j], forgets_delta_ ? 0.0f : delta));
    dot_row(hd_, visible, ds, 1, kv_.k.data(), hd_, row_.data());
    for (std::int64_t e = 0; e < hd_; ++e) row_[e] = mul(row_[e], scale_);
    store_row(hd_, row_.data(), op_.dqkv.row(row) + head * hd_);
  }

  const AttentionBackward<T>& op_;
  std::int64_t first_, length_, kv_head_, hd_, group_, k_column_, v_column_;
  KeysAndValues kv_;
  float scale_;
  bool forgets_delta_ = fault("attention-backward-forgets-delta");
  std::vector<float> p_, ds_, q_, dout_, row_, dk_, dv_;
};

}  // namespace

template <class T>
void run(HostQueue, const AttentionForward<T>& op) {
  const std::int64_t hd = op.head_dim, group = op.heads / op.kv_heads;
  const float scale = scale_of(hd);
  const bool acausal = fault("attention-sees-the-next-token");
  const bool leaks = fault("attention-leaks-previous-document");
  const bool forgets_rescale = fault("attention-forgets-rescale-between-blocks");
  const bool wrong_group = fault("attention-query-heads-share-first-kv-head");
  for (std::int64_t i = 0; i < op.qkv.rows; ++i) {
    if (op.row_document.data[i] >= 0) continue;
    store_zero(op.o.cols, op.o.row(i));
    store_zero(op.lse.cols, op.lse.row(i));
  }
  std::vector<float> s, q(static_cast<std::size_t>(hd)), o(q);
  for (std::int64_t d = 0; d < op.document_start.cols; ++d) {
    if (op.document_length.data[d] == 0) continue;
    const std::int64_t own = op.document_start.data[d];
    const std::int64_t before = leaks && own > 0 && op.row_document.data[own - 1] >= 0 ? 1 : 0;
    const std::int64_t first = own - before, length = op.document_length.data[d] + before;
    s.resize(static_cast<std::size_t>(padded(length)));
    for (std::int64_t kv_head = 0; kv_head < op.kv_heads; ++kv_head) {
      const std::int64_t source = wrong_group ? 0 : kv_head;
      const KeysAndValues kv(op.qkv, first, length, (op.heads + source) * hd, (op.heads + op.kv_heads + source) * hd,
                             hd);
      for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        for (std::int64_t i = before; i < length; ++i) {
          const std::int64_t visible = std::min(length, i + 1 + (acausal ? 1 : 0));
          load_row(hd, op.qkv.row(first + i) + h * hd, q.data());
          kv.scores(q.data(), visible, scale, s.data());
          op.lse.row(first + i)[h] = softmax_row(kv, s.data(), visible, forgets_rescale, o.data());
          store_row(hd, o.data(), op.o.row(first + i) + h * hd);
        }
      }
    }
  }
}

template <class T>
void run(HostQueue, const AttentionBackward<T>& op) {
  const bool skips = fault("attention-backward-keeps-padding-rows");
  for (std::int64_t i = 0; i < op.qkv.rows; ++i) {
    if (op.row_document.data[i] < 0 && !skips) store_zero(op.dqkv.cols, op.dqkv.row(i));
  }
  for (std::int64_t d = 0; d < op.document_start.cols; ++d) {
    const std::int64_t length = op.document_length.data[d];
    for (std::int64_t kv_head = 0; length > 0 && kv_head < op.kv_heads; ++kv_head) {
      KvHeadBackward<T>(op, op.document_start.data[d], length, kv_head).run();
    }
  }
}

template void run(HostQueue, const AttentionForward<float>&);
template void run(HostQueue, const AttentionBackward<float>&);

}  // namespace lockstep
