// Attention and scan of one document in fp32 against the contract's sums written out, one number at a time: the blocks
// and tiles of the oracle change no order.
#include <gtest/gtest.h>

#include "oracle/attention.h"
#include "oracle/attention_gradient.h"
#include "oracle/scan.h"
#include "oracle/scan_gradient.h"
#include "tests/oracle/cases.h"

namespace lockstep::oracle {
namespace {

const Mutant kNone;
using Rows = Matrix<float>;

Rows filled(std::int64_t rows, std::int64_t cols, std::uint32_t seed, double size) {
  Draws numbers(seed);
  Rows matrix(rows, cols);
  for (float& value : matrix.values) value = static_cast<float>(size * numbers.next());
  return matrix;
}

Pack one_document(std::int64_t rows) {
  Pack pack;
  pack.rows = rows;
  pack.documents = pack.runs = {{0, rows, 0}};
  return pack;
}

// CHAIN32 of f(k) = (a, b), continued from c.
template <class F>
float chain(std::int64_t n, F f, float c = 0.0f) {
  for (std::int64_t k = 0; k < n; ++k) {
    const auto [a, b] = f(k);
    c = fma(a, b, c);
  }
  return add(c, 0.0f);
}
using Factors = std::pair<float, float>;

struct PlainAttention {
  PlainAttention(const AttentionShape& s, const Rows& qkv)
      : shape(s),
        in(qkv),
        length(qkv.rows),
        scale(div(1.0f, sqrt(static_cast<float>(s.head_dim)))),
        out(length, s.heads * s.head_dim),
        lse(length, s.heads) {}

  float q(std::int64_t h, std::int64_t i, std::int64_t e) const { return in.row(i)[h * shape.head_dim + e]; }
  float k(std::int64_t h, std::int64_t j, std::int64_t e) const {
    return in.row(j)[(shape.heads + h / shape.group()) * shape.head_dim + e];
  }
  float v(std::int64_t h, std::int64_t j, std::int64_t e) const {
    return in.row(j)[(shape.heads + shape.kv_heads + h / shape.group()) * shape.head_dim + e];
  }
  float score(std::int64_t h, std::int64_t i, std::int64_t j) const {
    return mul(chain(shape.head_dim, [&](std::int64_t e) { return Factors(q(h, i, e), k(h, j, e)); }), scale);
  }

  void forward(std::int64_t h, std::int64_t i) {
    float m = -std::numeric_limits<float>::infinity(), l = 0;
    std::vector<float> o(shape.head_dim);
    for (std::int64_t first = 0; first <= i; first += 32) {
      float p[32] = {}, t[32], larger = m;
      const std::int64_t seen = std::min<std::int64_t>(32, i + 1 - first);
      for (std::int64_t j = 0; j < seen; ++j) larger = max(larger, score(h, i, first + j));
      larger = add(larger, 0.0f);
      const float al = expn(sub(m, larger));
      for (std::int64_t j = 0; j < seen; ++j) p[j] = expn(sub(score(h, i, first + j), larger));
      m = larger;
      std::copy_n(p, 32, t);
      for (int off = 16; off > 0; off /= 2) {
        for (int x = 0; x < off; ++x) t[x] = add(t[x], t[x + off]);
      }
      l = fma(l, al, t[0]);
      for (std::int64_t e = 0; e < shape.head_dim; ++e) {
        o[e] = mul(o[e], al);
        for (std::int64_t j = 0; j < seen; ++j) o[e] = fma(p[j], v(h, first + j, e), o[e]);
      }
    }
    for (std::int64_t e = 0; e < shape.head_dim; ++e) {
      out.row(i)[h * shape.head_dim + e] = mul(add(o[e], 0.0f), div(1.0f, add(l, 0.0f)));
    }
    lse.row(i)[h] = add(m, log(add(l, 0.0f)));
  }

  // p and ds of one pair.
  Factors pair(const Rows& d_out, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const float* o = out.row(i) + h * shape.head_dim;
    const float* d = d_out.row(i) + h * shape.head_dim;
    const float delta = r128<float>(shape.head_dim, [&](std::int64_t e, float acc) { return fma(o[e], d[e], acc); });
    const float p = expn(sub(score(h, i, j), lse.row(i)[h]));
    const float dp = chain(shape.head_dim, [&](std::int64_t e) { return Factors(d[e], v(h, j, e)); });
    return {p, mul(p, sub(dp, delta))};
  }

  Rows backward(const Rows& d_out) const {
    const std::int64_t hd = shape.head_dim;
    Rows d(length, in.cols);
    for (std::int64_t r = 0; r < length; ++r) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        for (std::int64_t e = 0; e < hd; ++e) {
          d.row(r)[h * hd + e] = mul(
              chain(r + 1, [&](std::int64_t j) { return Factors(pair(d_out, h, r, j).second, k(h, j, e)); }), scale);
        }
      }
      for (std::int64_t kv = 0; kv < shape.kv_heads; ++kv) {
        for (std::int64_t e = 0; e < hd; ++e) {
          float dk = 0, dv = 0;
          for (std::int64_t h = kv * shape.group(); h < (kv + 1) * shape.group(); ++h) {
            for (std::int64_t i = r; i < length; ++i) {
              const auto [p, ds] = pair(d_out, h, i, r);
              dv = fma(p, d_out.row(i)[h * hd + e], dv);
              dk = fma(ds, q(h, i, e), dk);
            }
          }
          d.row(r)[(shape.heads + kv) * hd + e] = mul(add(dk, 0.0f), scale);
          d.row(r)[(shape.heads + shape.kv_heads + kv) * hd + e] = add(dv, 0.0f);
        }
      }
    }
    return d;
  }

  AttentionShape shape;
  const Rows& in;
  std::int64_t length;
  float scale;
  Rows out, lse;
};

TEST(attention, has_the_bits_of_the_sums_written_out) {
  const AttentionShape shape{4, 2, 6};
  for (const std::int64_t length : {1, 33, 70}) {
    const Rows qkv = filled(length, 48, 1, 2.0), d_out = filled(length, 24, 2, 1.0);
    PlainAttention want(shape, qkv);
    for (std::int64_t i = 0; i < length; ++i) {
      for (std::int64_t h = 0; h < shape.heads; ++h) want.forward(h, i);
    }
    const Pack pack = one_document(length);
    Rows out(length, 24), lse(length, 4);
    attention<Fp32>(pack, shape, qkv, out, lse, kNone);
    EXPECT_TRUE(same_bits(out.values, want.out.values)) << length;
    EXPECT_TRUE(same_bits(lse.values, want.lse.values)) << length;
    const Rows d = attention_gradient<Fp32>(pack, shape, qkv, out, lse, d_out, kNone);
    EXPECT_TRUE(same_bits(d.values, want.backward(d_out).values)) << length;
  }
}

// One chunk of one head: all that 2.8 names, by its names.
struct PlainHead {
  std::vector<float> dt, cs, e, r, w, s, ds;  // s and ds at [n * P + p]
  float a = 0, el = 0;
};

struct PlainScan {
  PlainScan(const ScanInput<float>& i, const Rows& d)
      : in(i), dy(d), y(d.rows, d.cols), dxbc(d.rows, i.xbc.cols), ddt(d.rows, i.shape.heads) {}

  std::int64_t p_count() const { return in.shape.head_dim; }
  std::int64_t n_count() const { return in.shape.state; }
  std::int64_t group(std::int64_t h) const { return h / in.shape.group_heads(); }
  float dyv(std::int64_t h, std::int64_t i, std::int64_t p) const { return dy.row(first + i)[h * p_count() + p]; }
  float x(std::int64_t h, std::int64_t j, std::int64_t p) const { return in.x(first + j, h)[p]; }
  float xd(std::int64_t h, std::int64_t j, std::int64_t p) const { return mul(x(h, j, p), heads[h].dt[j]); }
  float xw(std::int64_t h, std::int64_t j, std::int64_t p) const { return mul(x(h, j, p), heads[h].w[j]); }
  float b(std::int64_t g, std::int64_t j, std::int64_t n) const { return in.b(first + j, g)[n]; }
  float c(std::int64_t g, std::int64_t i, std::int64_t n) const { return in.c(first + i, g)[n]; }
  float ld(std::int64_t h, std::int64_t i, std::int64_t j) const { return expn(sub(heads[h].cs[i], heads[h].cs[j])); }
  float m(std::int64_t h, std::int64_t i, std::int64_t j) const {
    const std::int64_t g = group(h);
    return mul(chain(n_count(), [&](std::int64_t n) { return Factors(c(g, i, n), b(g, j, n)); }), ld(h, i, j));
  }
  float y_sum(std::int64_t h, std::int64_t i, std::int64_t p) const {
    const float inter =
        chain(n_count(), [&](std::int64_t n) { return Factors(c(group(h), i, n), heads[h].s[n * p_count() + p]); });
    return chain(
        i + 1, [&](std::int64_t j) { return Factors(m(h, i, j), xd(h, j, p)); }, mul(inter, heads[h].e[i]));
  }
  float t(std::int64_t h, std::int64_t j, std::int64_t p) const {
    return chain(n_count(), [&](std::int64_t n) { return Factors(b(group(h), j, n), heads[h].ds[n * p_count() + p]); });
  }
  float xa(std::int64_t h, std::int64_t j, std::int64_t p) const {
    return chain(
        rows - j, [&](std::int64_t i) { return Factors(m(h, j + i, j), dyv(h, j + i, p)); },
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
          y.row(first + i)[h * p_count() + p] = fma(in.d[h], x(h, i, p), y_sum(h, i, p));
        }
      }
      for (std::int64_t n = 0; n < n_count(); ++n) {
        for (std::int64_t p = 0; p < p_count(); ++p) {
          float& s = k.s[n * p_count() + p];
          s = fma(k.el, s, chain(rows, [&](std::int64_t j) { return Factors(b(group(h), j, n), xw(h, j, p)); }));
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
      const float hj = over_p([&](std::int64_t p, float acc) { return fma(dyv(h, j, p), y_sum(h, j, p), acc); });
      const float q = over_p([&](std::int64_t p, float acc) { return fma(x(h, j, p), t(h, j, p), acc); });
      dcs[j] = sub(hj, mul(k.dt[j], g[j]));
      ex = fma(k.w[j], q, ex);
    }
    const float ss =
        r1024<float>(n_count() * p_count(), [&](std::int64_t e, float acc) { return fma(k.ds[e], k.s[e], acc); });
    dcs[rows - 1] = add(dcs[rows - 1], fma(k.el, ss, add(ex, 0.0f)));
    for (std::int64_t j = rows; j-- > 0;) {
      sum = add(sum, dcs[j]);
      const float z = mul(fma(k.a, sum, g[j]), sigmoid(add(in.dt(first + j, h), in.dt_bias[h])));
      ddt.row(first + j)[h] = z;
    }
  }

  void backward_chunk() {
    for (std::int64_t h = 0; h < in.shape.heads; ++h) {
      for (std::int64_t j = 0; j < rows; ++j) {
        for (std::int64_t p = 0; p < p_count(); ++p) {
          dxbc.row(first + j)[h * p_count() + p] = fma(in.d[h], dyv(h, j, p), mul(xa(h, j, p), heads[h].dt[j]));
        }
      }
      decays(h);
    }
    for (std::int64_t g = 0; g < in.shape.groups; ++g) group_gradients(g);
    for (std::int64_t h = 0; h < in.shape.heads; ++h) {
      for (std::int64_t n = 0; n < n_count(); ++n) {
        for (std::int64_t p = 0; p < p_count(); ++p) {
          float& ds = heads[h].ds[n * p_count() + p];
          ds = fma(heads[h].el, ds, chain(rows, [&](std::int64_t i) {
                     return Factors(c(group(h), i, n), mul(dyv(h, i, p), heads[h].e[i]));
                   }));
        }
      }
    }
  }

  float kk(std::int64_t g, std::int64_t i, std::int64_t j) const {
    float k = 0;
    for (std::int64_t h = g * in.shape.group_heads(); h < (g + 1) * in.shape.group_heads(); ++h) {
      k = add(k,
              mul(chain(p_count(), [&](std::int64_t p) { return Factors(dyv(h, i, p), xd(h, j, p)); }), ld(h, i, j)));
    }
    return add(k, 0.0f);
  }

  void group_gradients(std::int64_t g) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t n = 0; n < n_count(); ++n) {
        float dc = 0, db = 0;
        for (std::int64_t h = g * in.shape.group_heads(); h < (g + 1) * in.shape.group_heads(); ++h) {
          for (std::int64_t p = 0; p < p_count(); ++p) {
            dc = fma(mul(dyv(h, r, p), heads[h].e[r]), heads[h].s[n * p_count() + p], dc);
            db = fma(xw(h, r, p), heads[h].ds[n * p_count() + p], db);
          }
        }
        for (std::int64_t j = 0; j <= r; ++j) dc = fma(kk(g, r, j), b(g, j, n), dc);
        for (std::int64_t i = r; i < rows; ++i) db = fma(kk(g, i, r), c(g, i, n), db);
        float* to = dxbc.row(first + r) + in.shape.inner() + g * n_count() + n;
        to[0] = add(db, 0.0f);
        to[in.shape.groups * n_count()] = add(dc, 0.0f);
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

TEST(scan, has_the_bits_of_the_sums_written_out) {
  const ScanShape shape{4, 6, 2, 5, 11};  // heads, head_dim, groups, state, chunk
  const std::vector<float> dt_bias{-1, 0.5, 0.1f, -2}, a_log{0.1f, 1, 2, -1}, d{1, 0.5, -1, 2};
  for (const std::int64_t length : {1, 11, 25}) {
    const Rows xbc = filled(length, 24 + 20, 3, 1.0), in_proj = filled(length, 24 + 44 + 4, 4, 1.0);
    const Rows dy = filled(length, 24, 5, 1.0);
    const ScanInput<float> in{shape, xbc, in_proj, dt_bias.data(), a_log.data(), d.data()};
    PlainScan want(in, dy);
    want.run(length);
    const Pack pack = one_document(length);
    Rows y(length, 24), dxbc(length, 44), d_in_proj(length, 72), ddt(length, 4);
    scan<Fp32>(pack, in, y, kNone);
    EXPECT_TRUE(same_bits(y.values, want.y.values)) << length;
    scan_gradient<Fp32>(pack, in, dy, dxbc, d_in_proj, kNone);
    for (std::int64_t i = 0; i < length; ++i) std::copy_n(d_in_proj.row(i) + 68, 4, ddt.row(i));
    EXPECT_TRUE(same_bits(dxbc.values, want.dxbc.values)) << length;
    EXPECT_TRUE(same_bits(ddt.values, want.ddt.values)) << length;
  }
}

}  // namespace
}  // namespace lockstep::oracle
