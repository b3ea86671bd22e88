// Attention and scan of one document in fp32 and bf16 against the contract's sums written out, one
// number at a time: the blocks and tiles of the oracle change no order.
#include <gtest/gtest.h>

#include "oracle/ops/attention.h"
#include "oracle/ops/attention_gradient.h"
#include "oracle/ops/scan.h"
#include "oracle/ops/scan_gradient.h"
#include "tests/oracle/ops/plain.h"

namespace lockstep::oracle {
namespace {

const Mutant kNone;

PackedBatch one_document(std::int64_t rows) {
  PackedBatch pack;
  pack.rows = rows;
  pack.documents = pack.runs = {{0, rows, 0}};
  return pack;
}

// The halving tree of fp32, the four sums of bf16.
template <class Numbers>
struct PlainSum {
  float l = 0, part[4] = {};
  void take(const std::vector<float>& p, float al) {
    std::vector<float> t = p;
    for (int off = Numbers::kKvBlock / 2; off > 0; off /= 2) {
      for (int x = 0; x < off; ++x) t[x] = add(t[x], t[x + off]);
    }
    l = fma(l, al, t[0]);
    for (int c = 0; c < 4; ++c) {
      part[c] = mul(part[c], al);
      for (int j = 0; j < Numbers::kKvBlock; ++j)
        part[c] = (j % 8) / 2 == c ? add(part[c], p[j]) : part[c];
    }
  }
  float value() const {
    return add(Numbers::kTensorCores ? add(add(part[0], part[1]), add(part[2], part[3])) : l, 0.0f);
  }
};

template <class Numbers>
struct PlainAttention {
  PlainAttention(const AttentionShape& s, const Rows& qkv)
      : shape(s),
        in(qkv),
        length(qkv.rows),
        scale(div(1.0f, sqrt(static_cast<float>(s.head_dim)))),
        out(length, s.heads * s.head_dim),
        lse(length, s.heads) {}

  float q(std::int64_t h, std::int64_t i, std::int64_t e) const {
    return in.row(i)[h * shape.head_dim + e];
  }
  float k(std::int64_t h, std::int64_t j, std::int64_t e) const {
    return in.row(j)[(shape.heads + h / shape.group()) * shape.head_dim + e];
  }
  float v(std::int64_t h, std::int64_t j, std::int64_t e) const {
    return in.row(j)[(shape.heads + shape.kv_heads + h / shape.group()) * shape.head_dim + e];
  }
  float score(std::int64_t h, std::int64_t i, std::int64_t j) const {
    return mul(chain<Numbers>(0, shape.head_dim,
                              [&](std::int64_t e) { return Factors(q(h, i, e), k(h, j, e)); }),
               scale);
  }

  void forward(std::int64_t h, std::int64_t i) {
    float m = -std::numeric_limits<float>::infinity();
    PlainSum<Numbers> l;
    std::vector<float> o(shape.head_dim);
    for (std::int64_t first = 0; first <= i; first += Numbers::kKvBlock) {
      std::vector<float> p(Numbers::kKvBlock);
      const std::int64_t seen = std::min<std::int64_t>(Numbers::kKvBlock, i + 1 - first);
      float larger = m;
      for (std::int64_t j = 0; j < seen; ++j) larger = max(larger, p[j] = score(h, i, first + j));
      larger = add(larger, 0.0f);
      const float al = expn(sub(m, larger));
      for (std::int64_t j = 0; j < seen; ++j) p[j] = expn(sub(p[j], larger));
      m = larger;
      l.take(p, al);
      for (std::int64_t e = 0; e < shape.head_dim; ++e) {
        o[e] = chain<Numbers>(
            0, seen, [&](std::int64_t j) { return Factors(Numbers::st(p[j]), v(h, first + j, e)); },
            mul(o[e], al));
      }
    }
    for (std::int64_t e = 0; e < shape.head_dim; ++e) {
      out.row(i)[h * shape.head_dim + e] = Numbers::st(mul(o[e], div(1.0f, l.value())));
    }
    lse.row(i)[h] = add(m, log(l.value()));
  }

  // Weights and slopes of all pairs of one head, as they are stored.
  void find_pairs(const Rows& d_out, std::int64_t h) {
    const std::int64_t hd = shape.head_dim;
    p = ds = Rows(length, length);
    for (std::int64_t i = 0; i < length; ++i) {
      const float *o = out.row(i) + h * hd, *d = d_out.row(i) + h * hd;
      const float delta =
          r128<float>(hd, [&](std::int64_t e, float acc) { return fma(o[e], d[e], acc); });
      for (std::int64_t j = 0; j <= i; ++j) {
        const float weight = expn(sub(score(h, i, j), lse.row(i)[h]));
        const float dp =
            chain<Numbers>(0, hd, [&](std::int64_t e) { return Factors(d[e], v(h, j, e)); });
        p.row(i)[j] = Numbers::st(weight);
        ds.row(i)[j] = Numbers::st(mul(weight, sub(dp, delta)));
      }
    }
  }

  Rows backward(const Rows& d_out) {
    const std::int64_t hd = shape.head_dim;
    Rows d(length, in.cols), sums(length, in.cols);
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      find_pairs(d_out, h);
      const std::int64_t at_k = (shape.heads + h / shape.group()) * hd,
                         at_v = at_k + shape.kv_heads * hd;
      for (std::int64_t r = 0; r < length; ++r) {
        for (std::int64_t e = 0; e < hd; ++e) {
          const auto dq = [&](std::int64_t j) { return Factors(ds.row(r)[j], k(h, j, e)); };
          const auto dk = [&](std::int64_t i) { return Factors(ds.row(i)[r], q(h, i, e)); };
          const auto dv = [&](std::int64_t i) {
            return Factors(p.row(i)[r], d_out.row(i)[h * hd + e]);
          };
          d.row(r)[h * hd + e] = Numbers::st(mul(chain<Numbers>(0, r + 1, dq), scale));
          sums.row(r)[at_k + e] = chain<Numbers>(r, length, dk, sums.row(r)[at_k + e]);
          sums.row(r)[at_v + e] = chain<Numbers>(r, length, dv, sums.row(r)[at_v + e]);
        }
      }
    }
    for (std::int64_t r = 0; r < length; ++r) {
      for (std::int64_t e = shape.heads * hd; e < in.cols; ++e) {
        const bool key = e < (shape.heads + shape.kv_heads) * hd;
        d.row(r)[e] = Numbers::st(key ? mul(sums.row(r)[e], scale) : sums.row(r)[e]);
      }
    }
    return d;
  }

  AttentionShape shape;
  const Rows& in;
  std::int64_t length;
  float scale;
  Rows out, lse, p, ds;
};

template <class Numbers>
void expect_plain_attention(const AttentionShape& shape, std::int64_t length) {
  const std::int64_t hd = shape.head_dim, cols = (shape.heads + 2 * shape.kv_heads) * hd;
  const Rows qkv = filled<Numbers>(length, cols, 1, 2.0),
             d_out = filled<Numbers>(length, shape.heads * hd, 2, 1.0);
  PlainAttention<Numbers> want(shape, qkv);
  for (std::int64_t i = 0; i < length; ++i) {
    for (std::int64_t h = 0; h < shape.heads; ++h) want.forward(h, i);
  }
  const PackedBatch pack = one_document(length);
  Rows out(length, shape.heads * hd), lse(length, shape.heads);
  attention<Numbers>(pack, shape, qkv, out, lse, kNone);
  EXPECT_TRUE(same_bits(out.values, want.out.values)) << length;
  EXPECT_TRUE(same_bits(lse.values, want.lse.values)) << length;
  const Rows d = attention_gradient<Numbers>(pack, shape, qkv, out, lse, d_out, kNone);
  EXPECT_TRUE(same_bits(d.values, want.backward(d_out).values)) << length;
}

TEST(attention, has_the_bits_of_the_sums_written_out) {
  for (const std::int64_t length : {1, 33, 70}) expect_plain_attention<Fp32>({4, 2, 6}, length);
}

// Around a kv block of 128 and a k16 group; a head of 24 leaves half a group empty.
TEST(attention, has_the_bits_of_the_sums_written_out_in_bf16) {
  for (const std::int64_t length : {1, 15, 33, 128, 129, 150})
    expect_plain_attention<Bf16>({2, 1, 24}, length);
  expect_plain_attention<Bf16>({4, 2, 16}, 70);
}

// One chunk of one head: all that 2.8 names, by its names.
struct PlainHead {
  std::vector<float> dt, cs, e, r, w, s, ds;  // s and ds at [n * P + p]
  float a = 0, el = 0;
};

template <class Numbers>
struct PlainScan {
  PlainScan(const ScanInput<float>& i, const Rows& d)
      : in(i), dy(d), y(d.rows, d.cols), dxbc(d.rows, i.xbc.cols), ddt(d.rows, i.shape.heads) {}

  std::int64_t p_count() const { return in.shape.head_dim; }
  std::int64_t n_count() const { return in.shape.state; }
  std::int64_t group(std::int64_t h) const { return h / in.shape.group_heads(); }
  float dyv(std::int64_t h, std::int64_t i, std::int64_t p) const {
    return dy.row(first + i)[h * p_count() + p];
  }
  float x(std::int64_t h, std::int64_t j, std::int64_t p) const { return in.x(first + j, h)[p]; }
  float xd(std::int64_t h, std::int64_t j, std::int64_t p) const {
    return Numbers::st(mul(x(h, j, p), heads[h].dt[j]));
  }
  float xw(std::int64_t h, std::int64_t j, std::int64_t p) const {
    return Numbers::st(mul(x(h, j, p), heads[h].w[j]));
  }
  float b(std::int64_t g, std::int64_t j, std::int64_t n) const { return in.b(first + j, g)[n]; }
  float c(std::int64_t g, std::int64_t i, std::int64_t n) const { return in.c(first + i, g)[n]; }
  float ld(std::int64_t h, std::int64_t i, std::int64_t j) const {
    return expn(sub(heads[h].cs[i], heads[h].cs[j]));
  }
  float dye(std::int64_t h, std::int64_t i, std::int64_t p) const {
    return Numbers::st(mul(dyv(h, i, p), heads[h].e[i]));
  }
  float sb(std::int64_t h, std::int64_t n, std::int64_t p) const {
    return Numbers::st(heads[h].s[n * p_count() + p]);
  }
  float dsb(std::int64_t h, std::int64_t n, std::int64_t p) const {
    return Numbers::st(heads[h].ds[n * p_count() + p]);
  }
  float m(std::int64_t h, std::int64_t i, std::int64_t j) const {
    const std::int64_t g = group(h);
    const float gm = chain<Numbers>(
        0, n_count(), [&](std::int64_t n) { return Factors(c(g, i, n), b(g, j, n)); });
    return Numbers::st(mul(gm, ld(h, i, j)));
  }
  float y_sum(std::int64_t h, std::int64_t i, std::int64_t p) const {
    const float inter = chain<Numbers>(
        0, n_count(), [&](std::int64_t n) { return Factors(c(group(h), i, n), sb(h, n, p)); });
    return chain<Numbers>(
        0, i + 1, [&](std::int64_t j) { return Factors(m(h, i, j), xd(h, j, p)); },
        mul(inter, heads[h].e[i]));
  }
  float t(std::int64_t h, std::int64_t j, std::int64_t p) const {
    return chain<Numbers>(0, n_count(),
                          [&](std::int64_t n) { return Factors(b(group(h), j, n), dsb(h, n, p)); });
  }
  float xa(std::int64_t h, std::int64_t j, std::int64_t p) const {
    return chain<Numbers>(
        j, rows, [&](std::int64_t i) { return Factors(m(h, i, j), dyv(h, i, p)); },
        mul(t(h, j, p), heads[h].r[j]));
  }

  void enter(std::int64_t chunk_first, std::int64_t chunk_rows) {
    first = chunk_first;
    rows = chunk_rows;
    for (std::int64_t h = 0; h < in.shape.heads; ++h) {
      PlainHead& k = heads[h];
      k.dt.assign(rows, 0);
      k.cs = k.e = k.r = k.w = k.dt;
      k.a = neg(exp(in.a_log[h]));
      float sum = 0;
      for (std::int64_t j = 0; j < rows; ++j) {
        k.dt[j] = softplus(add(in.dt(first + j, h), in.dt_bias[h]));
        k.cs[j] = sum = fma(k.dt[j], k.a, sum);
        k.e[j] = expn(sum);
      }
      for (std::int64_t j = 0; j < rows; ++j) {
        k.r[j] = expn(sub(sum, k.cs[j]));
        k.w[j] = mul(k.r[j], k.dt[j]);
      }
      k.el = expn(sum);
    }
  }

  void forward_chunk() {
    for (std::int64_t h = 0; h < in.shape.heads; ++h) {
      PlainHead& k = heads[h];
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t p = 0; p < p_count(); ++p) {
          y.row(first + i)[h * p_count() + p] =
              Numbers::st(fma(in.d[h], x(h, i, p), y_sum(h, i, p)));
        }
      }
      for (std::int64_t n = 0; n < n_count(); ++n) {
        for (std::int64_t p = 0; p < p_count(); ++p) {
          float& s = k.s[n * p_count() + p];
          const auto gain = [&](std::int64_t j) { return Factors(b(group(h), j, n), xw(h, j, p)); };
          s = fma(k.el, s, chain<Numbers>(0, rows, gain));
        }
      }
    }
  }

  void decays(std::int64_t h) {
    const PlainHead& k = heads[h];
    std::vector<float> g(rows), dcs(rows);
    float ex = 0, sum = 0;
    const auto over_p = [&](auto f) { return r128<float>(p_count(), f); };
    for (std::int64_t j = 0; j < rows; ++j) {
      g[j] = over_p([&](std::int64_t p, float acc) { return fma(x(h, j, p), xa(h, j, p), acc); });
      const float hj =
          over_p([&](std::int64_t p, float acc) { return fma(dyv(h, j, p), y_sum(h, j, p), acc); });
      const float q =
          over_p([&](std::int64_t p, float acc) { return fma(x(h, j, p), t(h, j, p), acc); });
      dcs[j] = sub(hj, mul(k.dt[j], g[j]));
      ex = fma(k.w[j], q, ex);
    }
    const float ss = r1024<float>(n_count() * p_count(), [&](std::int64_t e, float acc) {
      return fma(k.ds[e], k.s[e], acc);
    });
    dcs[rows - 1] = add(dcs[rows - 1], fma(k.el, ss, add(ex, 0.0f)));
    for (std::int64_t j = rows; j-- > 0;) {
      sum = add(sum, dcs[j]);
      const float z = mul(fma(k.a, sum, g[j]), sigmoid(add(in.dt(first + j, h), in.dt_bias[h])));
      ddt.row(first + j)[h] = Numbers::st(z);
    }
  }

  void backward_chunk() {
    for (std::int64_t h = 0; h < in.shape.heads; ++h) {
      for (std::int64_t j = 0; j < rows; ++j) {
        for (std::int64_t p = 0; p < p_count(); ++p) {
          dxbc.row(first + j)[h * p_count() + p] =
              Numbers::st(fma(in.d[h], dyv(h, j, p), mul(xa(h, j, p), heads[h].dt[j])));
        }
      }
      decays(h);
    }
    for (std::int64_t g = 0; g < in.shape.groups; ++g) group_gradients(g);
    for (std::int64_t h = 0; h < in.shape.heads; ++h) {
      for (std::int64_t n = 0; n < n_count(); ++n) {
        for (std::int64_t p = 0; p < p_count(); ++p) {
          float& ds = heads[h].ds[n * p_count() + p];
          const auto gain = [&](std::int64_t i) {
            return Factors(c(group(h), i, n), dye(h, i, p));
          };
          ds = fma(heads[h].el, ds, chain<Numbers>(0, rows, gain));
        }
      }
    }
  }

  float kk(std::int64_t g, std::int64_t i, std::int64_t j) const {
    float k = 0;
    for (std::int64_t h = g * in.shape.group_heads(); h < (g + 1) * in.shape.group_heads(); ++h) {
      const auto pair = [&](std::int64_t p) { return Factors(dyv(h, i, p), xd(h, j, p)); };
      k = add(k, mul(chain<Numbers>(0, p_count(), pair), ld(h, i, j)));
    }
    return Numbers::st(add(k, 0.0f));
  }

  void group_gradients(std::int64_t g) {
    Rows kkb(rows, rows);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) kkb.row(i)[j] = kk(g, i, j);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t n = 0; n < n_count(); ++n) {
        float dc = 0, db = 0;
        for (std::int64_t h = g * in.shape.group_heads(); h < (g + 1) * in.shape.group_heads();
             ++h) {
          dc = chain<Numbers>(
              0, p_count(), [&](std::int64_t p) { return Factors(dye(h, r, p), sb(h, n, p)); }, dc);
          db = chain<Numbers>(
              0, p_count(), [&](std::int64_t p) { return Factors(xw(h, r, p), dsb(h, n, p)); }, db);
        }
        dc = chain<Numbers>(
            0, r + 1, [&](std::int64_t j) { return Factors(kkb.row(r)[j], b(g, j, n)); }, dc);
        db = chain<Numbers>(
            r, rows, [&](std::int64_t i) { return Factors(kkb.row(i)[r], c(g, i, n)); }, db);
        float* to = dxbc.row(first + r) + in.shape.inner() + g * n_count() + n;
        to[0] = Numbers::st(db);
        to[in.shape.groups * n_count()] = Numbers::st(dc);
      }
    }
  }

  void run(std::int64_t length) {
    const std::int64_t chunk = in.shape.chunk, chunks = (length + chunk - 1) / chunk;
    const std::vector<float> zero(n_count() * p_count());
    heads.resize(in.shape.heads);
    for (PlainHead& head : heads) head.s = head.ds = zero;
    std::vector<std::vector<PlainHead>> at_start;
    for (std::int64_t k = 0; k < chunks; ++k) {
      at_start.push_back(heads);
      enter(k * chunk, std::min(chunk, length - k * chunk));
      forward_chunk();
    }
    for (std::int64_t k = chunks; k-- > 0;) {
      for (std::int64_t h = 0; h < in.shape.heads; ++h) heads[h].s = at_start[k][h].s;
      enter(k * chunk, std::min(chunk, length - k * chunk));
      backward_chunk();
    }
  }

  const ScanInput<float>& in;
  const Rows& dy;
  Rows y, dxbc, ddt;
  std::vector<PlainHead> heads;
  std::int64_t first = 0, rows = 0;
};

template <class Numbers>
void expect_plain_scan(const ScanShape& shape, std::int64_t length) {
  const std::vector<float> dt_bias{-1, 0.5, 0.1f, -2}, a_log{0.1f, 1, 2, -1}, d{1, 0.5, -1, 2};
  const std::int64_t inner = shape.inner(), conv = inner + 2 * shape.groups * shape.state;
  const Rows xbc = filled<Numbers>(length, conv, 3, 1.0),
             in_proj = filled<Numbers>(length, inner + conv + 4, 4, 1.0);
  const Rows dy = filled<Numbers>(length, inner, 5, 1.0);
  const ScanInput<float> in{shape, xbc, in_proj, dt_bias.data(), a_log.data(), d.data()};
  PlainScan<Numbers> want(in, dy);
  want.run(length);
  const PackedBatch pack = one_document(length);
  Rows y(length, inner), dxbc(length, conv), d_in_proj(length, inner + conv + 4), ddt(length, 4);
  scan<Numbers>(pack, in, y, kNone);
  EXPECT_TRUE(same_bits(y.values, want.y.values)) << length;
  scan_gradient<Numbers>(pack, in, dy, dxbc, d_in_proj, kNone);
  for (std::int64_t i = 0; i < length; ++i)
    std::copy_n(d_in_proj.row(i) + inner + conv, 4, ddt.row(i));
  EXPECT_TRUE(same_bits(dxbc.values, want.dxbc.values)) << length;
  EXPECT_TRUE(same_bits(ddt.values, want.ddt.values)) << length;
}

TEST(scan, has_the_bits_of_the_sums_written_out) {
  for (const std::int64_t length : {1, 11, 25}) expect_plain_scan<Fp32>({4, 6, 2, 5, 11}, length);
}

// Heads of 6 and states of 5 leave most of a k16 group empty; chunks of 32 have two groups.
TEST(scan, has_the_bits_of_the_sums_written_out_in_bf16) {
  for (const std::int64_t length : {1, 11, 25}) expect_plain_scan<Bf16>({4, 6, 2, 5, 16}, length);
  for (const std::int64_t length : {31, 33, 70})
    expect_plain_scan<Bf16>({4, 16, 2, 24, 32}, length);
}

}  // namespace
}  // namespace lockstep::oracle
