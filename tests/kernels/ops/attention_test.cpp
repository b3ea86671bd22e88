#include "kernels/ops/attention.h"

#include "kernels/core/fda16.h"
#include "kernels/core/packed_documents.h"
#include "kernels/core/reduce.h"
#include "kernels/ops/rope.h"
#include "tests/kernels/ops/documents.h"
#include "tests/kernels/ops/plain.h"

namespace lockstep {
namespace {

using plain::for_cases;
using plain::Matrix;

// softmax(q k^T / sqrt(hd)) v, document by document.
template <class Op>
Matrix attention(const Op& op, const Matrix& qkv, Matrix* lse = nullptr) {
  Matrix o(qkv.rows, op.heads * op.head_dim);
  for (std::int64_t i = 0; i < qkv.rows; ++i) {
    const std::int32_t document = op.row_document.data[i];
    for (std::int64_t h = 0; document >= 0 && h < op.heads; ++h) {
      const std::int64_t kv = h / (op.heads / op.kv_heads), start = first_row_of(op, document);
      const std::int64_t k = (op.heads + kv) * op.head_dim, v = k + op.kv_heads * op.head_dim;
      std::vector<double> p;
      double m = -1e300, l = 0;
      for (std::int64_t j = start; j <= i; ++j) {
        double s = 0;
        for (std::int64_t e = 0; e < op.head_dim; ++e)
          s += qkv(i, h * op.head_dim + e) * qkv(j, k + e);
        p.push_back(s / std::sqrt(static_cast<double>(op.head_dim)));
        m = std::max(m, p.back());
      }
      for (double& x : p) l += x = std::exp(x - m);
      for (std::int64_t j = start; j <= i; ++j) {
        const double weight = p[static_cast<std::size_t>(j - start)] / l;
        for (std::int64_t e = 0; e < op.head_dim; ++e)
          o(i, h * op.head_dim + e) += weight * qkv(j, v + e);
      }
      if (lse != nullptr) (*lse)(i, h) = m + std::log(l);
    }
  }
  return o;
}

// A score is a chain of hd products of at most `size`; its error is p's relative error. L terms and
// some more roundings.
TEST(Attention, ForwardStaysWithinItsBound) {
  for_cases<AttentionForward<float>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    const Matrix qkv(op.qkv);
    Matrix lse(qkv.rows, op.heads);
    const Matrix want = attention(op, qkv, &lse);
    const double largest = plain::largest(qkv), hd = op.head_dim;
    const double relative = plain::kUnit * ((hd + 4) * std::sqrt(hd) * largest * largest +
                                            static_cast<double>(qkv.rows) + 30);
    for (std::int64_t i = 0; i < qkv.rows; ++i) {
      for (std::int64_t h = 0; h < op.heads && op.row_document.data[i] >= 0; ++h) {
        ASSERT_TRUE(plain::near(op.lse.row(i)[h], lse(i, h), relative * (1 + std::abs(lse(i, h)))));
        for (std::int64_t e = 0; e < op.head_dim; ++e) {
          const std::int64_t c = h * op.head_dim + e;
          ASSERT_TRUE(plain::near(op.o.row(i)[c], want(i, c), 2 * relative * largest))
              << i << ", " << c;
        }
      }
    }
  });
}

// Fitted: the forward's relative error on terms of the gradient's own size.
TEST(Attention, BackwardIsTheSlope) {
  for_cases<AttentionBackward<float>>(
      160, 20, [](const auto& op) { return op.qkv.rows <= 60 && op.head_dim <= 20; },
      [](const auto& op) {
        run(HostQueue{}, op);
        Matrix qkv(op.qkv);
        const Matrix dout(op.dout), dqkv(op.dqkv);
        const auto loss = [&] {
          return plain::weighted(dout, attention(op, qkv), op.row_document.data);
        };
        plain::expect_slopes(qkv, dqkv, op.row_document.data, loss,
                             4e-5 * (1 + plain::largest(dqkv)), "dqkv", 24);
      });
}

// As above with the chains of FDA16 in the scores; each p is rounded once for the sum over v, and
// the output once more.
TEST(AttentionBf16, ForwardStaysWithinItsBound) {
  for_cases<AttentionForward<bf16>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    const Matrix qkv(op.qkv);
    Matrix lse(qkv.rows, op.heads);
    const Matrix want = attention(op, qkv, &lse);
    const double largest = plain::largest(qkv), hd = op.head_dim,
                 rows = static_cast<double>(qkv.rows);
    const double relative = plain::fda_error(hd, std::sqrt(hd) * largest * largest) +
                            plain::kUnit * (4 * largest * largest + rows + 30);
    const double rounded = 2.01 * plain::kBf16Unit + 2 * relative + plain::fda_error(rows, 1);
    for (std::int64_t i = 0; i < qkv.rows; ++i) {
      for (std::int64_t h = 0; h < op.heads && op.row_document.data[i] >= 0; ++h) {
        ASSERT_TRUE(plain::near(op.lse.row(i)[h], lse(i, h), relative * (1 + std::abs(lse(i, h)))));
        for (std::int64_t e = 0; e < op.head_dim; ++e) {
          const std::int64_t c = h * op.head_dim + e;
          ASSERT_TRUE(plain::near(load(op.o.row(i)[c]), want(i, c), rounded * largest))
              << i << ", " << c;
        }
      }
    }
  });
}

// Rows 0..count-1 of some columns of a document, padded to whole groups, one column after the
// other.
std::vector<float> columns_of(In<bf16> x, std::int64_t start, std::int64_t count,
                              std::int64_t column, std::int64_t n) {
  std::vector<float> list;
  for (std::int64_t i = start; i < start + count; ++i) {
    for (std::int64_t c = column; c < column + n; ++c) list.push_back(load(x.row(i)[c]));
  }
  return list;
}
// 2.6 for one row, as the text writes it: q [hd], k and v [count, hd].
float written_out_row(const std::vector<float>& q, const std::vector<float>& k,
                      const std::vector<float>& v, std::vector<float>& o) {
  const auto hd = static_cast<std::int64_t>(q.size()),
             count = static_cast<std::int64_t>(k.size()) / hd;
  const float scale = div(1.0f, sqrt(static_cast<float>(hd)));
  std::vector<float> p(static_cast<std::size_t>(count)), stored(p);
  float m = neg(infinity()), l[4] = {};
  std::fill(o.begin(), o.end(), 0.0f);
  for (std::int64_t b = 0; b < count; b += 128) {
    const std::int64_t end = std::min<std::int64_t>(count, b + 128);
    float top = m;
    for (std::int64_t j = b; j < end; ++j) {
      float& s = p[static_cast<std::size_t>(j)];
      s = mul(fda_chain(kSm90, 0, hd, q.data(), 1, k.data() + j * hd, 1, 0.0f), scale);
      top = max(top, s);
    }
    top = add(top, 0.0f);
    const float al = expn(sub(m, top));
    for (float& x : l) x = mul(x, al);
    for (std::int64_t j = b; j < end; ++j) {
      float& s = p[static_cast<std::size_t>(j)];
      s = expn(sub(s, top));
      l[(j - b) % 8 / 2] = add(l[(j - b) % 8 / 2], s);
      stored[static_cast<std::size_t>(j)] = load(st<bf16>(s));
    }
    for (std::int64_t e = 0; e < hd; ++e) {
      float& x = o[static_cast<std::size_t>(e)];
      x = fda_chain(kSm90, b, end, stored.data(), 1, v.data() + e, hd, mul(x, al));
    }
    m = top;
  }
  const float sum = add(add(add(l[0], l[1]), add(l[2], l[3])), 0.0f);
  for (float& x : o) x = mul(add(x, 0.0f), div(1.0f, sum));
  return add(m, log(sum));
}
TEST(AttentionBf16, ForwardHasTheBitsOfTheText) {
  for_cases<AttentionForward<bf16>>(12, [](const auto& op) {
    run(HostQueue{}, op);
    const std::int64_t hd = op.head_dim;
    std::vector<float> o(static_cast<std::size_t>(hd));
    for (std::int64_t i = 0; i < op.qkv.rows; ++i) {
      const std::int32_t document = op.row_document.data[i];
      for (std::int64_t h = 0; document >= 0 && h < op.heads; ++h) {
        const std::int64_t start = first_row_of(op, document), kv = h / (op.heads / op.kv_heads);
        const std::int64_t k = (op.heads + kv) * hd, v = k + op.kv_heads * hd, seen = i + 1 - start;
        const float lse = written_out_row(columns_of(op.qkv, i, 1, h * hd, hd),
                                          columns_of(op.qkv, start, seen, k, hd),
                                          columns_of(op.qkv, start, seen, v, hd), o);
        ASSERT_EQ(bits(op.lse.row(i)[h]), bits(lse)) << i << ", head " << h;
        for (std::int64_t e = 0; e < hd; ++e) {
          ASSERT_EQ(op.o.row(i)[h * hd + e].bits, st<bf16>(o[static_cast<std::size_t>(e)]).bits)
              << i << ", " << e;
        }
      }
    }
  });
}
// Three kv blocks: what the block size is shows in the bits.
TEST(AttentionBf16, HasTheBitsOfTheTextOverSeveralBlocks) {
  const std::int64_t hd = 16, rows = 290;
  std::vector<bf16> qkv, o(static_cast<std::size_t>(hd * rows));
  std::vector<float> lse(static_cast<std::size_t>(rows)), want(static_cast<std::size_t>(hd));
  plain::Picker pick(11);
  for (std::int64_t e = 0; e < rows * 3 * hd; ++e) {
    qkv.push_back(st<bf16>(static_cast<float>(pick.below(4000) - 2000) * 0.001f));
  }
  std::int32_t boundaries[] = {0, static_cast<std::int32_t>(rows)};
  std::vector<std::int32_t> document(static_cast<std::size_t>(rows));
  const AttentionForward<bf16> op{.qkv = tensor(qkv.data(), rows, 3 * hd),
                                  .cu_seqlens = tensor(boundaries, 1, 2),
                                  .cu_seqlens_padded = tensor(boundaries, 1, 2),
                                  .row_document = tensor(document.data(), 1, rows),
                                  .o = tensor(o.data(), rows, hd),
                                  .lse = tensor(lse.data(), rows, 1),
                                  .heads = 1,
                                  .kv_heads = 1,
                                  .head_dim = 16};
  run(HostQueue{}, op);
  for (std::int64_t i = 0; i < rows; ++i) {
    const float sum =
        written_out_row(columns_of(op.qkv, i, 1, 0, hd), columns_of(op.qkv, 0, i + 1, hd, hd),
                        columns_of(op.qkv, 0, i + 1, 2 * hd, hd), want);
    ASSERT_EQ(bits(op.lse.data[i]), bits(sum)) << i;
    for (std::int64_t e = 0; e < hd; ++e) {
      ASSERT_EQ(op.o.row(i)[e].bits, st<bf16>(want[static_cast<std::size_t>(e)]).bits)
          << i << ", " << e;
    }
  }
}
// The backward of one document and kv head as the text writes it: whole matrices of p and ds, zeros
// above the diagonal.
TEST(AttentionBf16, BackwardHasTheBitsOfTheText) {
  for_cases<AttentionBackward<bf16>>(
      16, 8, [](const auto& op) { return op.qkv.rows <= 90; },
      [](const auto& op) {
        run(HostQueue{}, op);
        const std::int64_t hd = op.head_dim, group = op.heads / op.kv_heads;
        const float scale = div(1.0f, sqrt(static_cast<float>(hd)));
        for (std::int64_t d = 0; d < slots_of(op); ++d) {
          const std::int64_t start = first_row_of(op, d), length = tokens_of(op, d);
          for (std::int64_t kv = 0; length > 0 && kv < op.kv_heads; ++kv) {
            const std::int64_t k_column = (op.heads + kv) * hd,
                               v_column = k_column + op.kv_heads * hd;
            const auto k = columns_of(op.qkv, start, length, k_column, hd),
                       v = columns_of(op.qkv, start, length, v_column, hd);
            std::vector<float> dk(k.size()), dv(k.size());
            for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
              const auto q = columns_of(op.qkv, start, length, h * hd, hd),
                         dout = columns_of(op.dout, start, length, h * hd, hd);
              const auto o = columns_of(op.o, start, length, h * hd, hd);
              std::vector<float> p(static_cast<std::size_t>(length * length)), ds(p);
              for (std::int64_t i = 0; i < length; ++i) {
                const float* qi = q.data() + i * hd;
                const float* di = dout.data() + i * hd;
                const float* oi = o.data() + i * hd;
                const float delta =
                    r128(hd, [&](std::int64_t e, float acc) { return fma(oi[e], di[e], acc); });
                for (std::int64_t j = 0; j <= i; ++j) {
                  const float s =
                      mul(fda_chain(kSm90, 0, hd, qi, 1, k.data() + j * hd, 1, 0.0f), scale);
                  const float dp = fda_chain(kSm90, 0, hd, di, 1, v.data() + j * hd, 1, 0.0f);
                  const float pij = expn(sub(s, op.lse.row(start + i)[h]));
                  p[static_cast<std::size_t>(i * length + j)] = load(st<bf16>(pij));
                  ds[static_cast<std::size_t>(i * length + j)] =
                      load(st<bf16>(mul(pij, sub(dp, delta))));
                }
                for (std::int64_t e = 0; e < hd; ++e) {
                  const float sum = fda_chain(kSm90, 0, length, ds.data() + i * length, 1,
                                              k.data() + e, hd, 0.0f);
                  ASSERT_EQ(op.dqkv.row(start + i)[h * hd + e].bits, st<bf16>(mul(sum, scale)).bits)
                      << "dQ " << i;
                }
              }
              for (std::int64_t j = 0; j < length; ++j) {
                for (std::int64_t e = 0; e < hd; ++e) {
                  float& x = dk[static_cast<std::size_t>(j * hd + e)];
                  float& y = dv[static_cast<std::size_t>(j * hd + e)];
                  x = fda_chain(kSm90, 0, length, ds.data() + j, length, q.data() + e, hd, x);
                  y = fda_chain(kSm90, 0, length, p.data() + j, length, dout.data() + e, hd, y);
                }
              }
            }
            for (std::int64_t j = 0; j < length; ++j) {
              for (std::int64_t e = 0; e < hd; ++e) {
                const auto at = static_cast<std::size_t>(j * hd + e);
                ASSERT_EQ(op.dqkv.row(start + j)[k_column + e].bits,
                          st<bf16>(mul(dk[at], scale)).bits)
                    << "dK " << j;
                ASSERT_EQ(op.dqkv.row(start + j)[v_column + e].bits, st<bf16>(dv[at]).bits)
                    << "dV " << j;
              }
            }
          }
        }
      });
}
TEST(AttentionBf16, HasTheVectorOfTheContract) {
  const std::int64_t hd = 16, rows = 3;
  std::vector<bf16> qkv(static_cast<std::size_t>(3 * hd * rows)),
      o(static_cast<std::size_t>(hd * rows));
  std::vector<float> lse(3);
  for (std::int64_t j = 0; j < rows; ++j) {
    bf16* row = qkv.data() + j * 3 * hd;
    for (std::int64_t e = 0; e < hd; ++e) {
      row[e] = st<bf16>(div(3.0f, static_cast<float>(e + 1)));
      row[hd + e] = st<bf16>(div(static_cast<float>((j - 1) * (e + 1)), 8.0f));
      row[2 * hd + e] = st<bf16>(add(static_cast<float>(j), div(static_cast<float>(e), 16.0f)));
    }
  }
  std::int32_t boundaries[] = {0, 3}, document[3] = {0, 0, 0};
  run(HostQueue{}, AttentionForward<bf16>{.qkv = tensor(qkv.data(), rows, 3 * hd),
                                          .cu_seqlens = tensor(boundaries, 1, 2),
                                          .cu_seqlens_padded = tensor(boundaries, 1, 2),
                                          .row_document = tensor(document, 1, 3),
                                          .o = tensor(o.data(), rows, hd),
                                          .lse = tensor(lse.data(), rows, 1),
                                          .heads = 1,
                                          .kv_heads = 1,
                                          .head_dim = 16});
  EXPECT_EQ(bits(lse[2]), 0x3fdeeffbu);
  const std::uint16_t want[] = {0x3fe0, 0x4004, 0x4018, 0x402c};
  for (std::size_t e = 0; e < 4; ++e) EXPECT_EQ(o[32 + 5 * e].bits, want[e]) << e;
}

// The gradient of 2.6 in double, and the size of the terms it sums: ds may be wrong by a store of
// its own and by the stores in O that delta reads, p by a store in dV, and each result by its
// store.
template <class Op>
Matrix attention_gradient(const Op& op, Matrix& size) {
  const Matrix qkv(op.qkv), dout(op.dout);
  const Matrix o = attention(op, qkv);
  Matrix lse(qkv.rows, op.heads), gradient(qkv.rows, qkv.cols);
  attention(op, qkv, &lse);
  const std::int64_t hd = op.head_dim;
  const double scale = 1 / std::sqrt(static_cast<double>(hd));
  for (std::int64_t i = 0; i < qkv.rows; ++i) {
    const std::int32_t document = op.row_document.data[i];
    for (std::int64_t h = 0; document >= 0 && h < op.heads; ++h) {
      const std::int64_t kv = h / (op.heads / op.kv_heads), k = (op.heads + kv) * hd,
                         v = k + op.kv_heads * hd;
      double delta = 0, delta_size = 0;
      for (std::int64_t e = 0; e < hd; ++e) {
        const double term = o(i, h * hd + e) * dout(i, h * hd + e);
        delta += term, delta_size += std::abs(term);
      }
      for (std::int64_t j = first_row_of(op, document); j <= i; ++j) {
        double s = 0, dp = 0, dp_size = 0;
        for (std::int64_t e = 0; e < hd; ++e) {
          s += qkv(i, h * hd + e) * qkv(j, k + e);
          dp += dout(i, h * hd + e) * qkv(j, v + e);
          dp_size += std::abs(dout(i, h * hd + e) * qkv(j, v + e));
        }
        const double p = std::exp(s * scale - lse(i, h)), ds = p * (dp - delta) * scale;
        const double ds_size = p * (dp_size + delta_size) * scale;
        for (std::int64_t e = 0; e < hd; ++e) {
          const std::int64_t q = h * hd + e;
          gradient(i, q) += ds * qkv(j, k + e), size(i, q) += ds_size * std::abs(qkv(j, k + e));
          gradient(j, k + e) += ds * qkv(i, q), size(j, k + e) += ds_size * std::abs(qkv(i, q));
          gradient(j, v + e) += p * dout(i, q), size(j, v + e) += p * std::abs(dout(i, q));
        }
      }
    }
  }
  return gradient;
}
TEST(AttentionBf16, BackwardStaysWithinItsBound) {
  for_cases<AttentionBackward<bf16>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    Matrix size(op.qkv.rows, op.qkv.cols);
    const Matrix want = attention_gradient(op, size);
    const double largest = plain::largest(Matrix(op.qkv)), hd = op.head_dim;
    // Two scores, p and the LSE, enter an exponent; fp32 and FDA16 errors are small beside the
    // three stores.
    const double relative =
        3.1 * plain::kBf16Unit + 4 * plain::fda_error(hd, std::sqrt(hd) * largest * largest) +
        plain::fda_error(3.0 * static_cast<double>(op.qkv.rows), 4) + 100 * plain::kUnit;
    for (std::int64_t i = 0; i < want.rows; ++i) {
      for (std::int64_t c = 0; c < want.cols && op.row_document.data[i] >= 0; ++c) {
        ASSERT_TRUE(plain::near(load(op.dqkv.row(i)[c]), want(i, c), relative * size(i, c) + 1e-35))
            << i << ", " << c;
      }
    }
  });
}

template <class T>
class AttentionIn : public testing::Test {};
TYPED_TEST_SUITE(AttentionIn, plain::Numerics);

TYPED_TEST(AttentionIn, SeesOneDocument) {
  for_cases<AttentionForward<TypeParam>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    for_documents(op, [&](const Alone& alone) {
      AttentionForward<TypeParam> one = op;
      one.qkv = alone.rows_of(op.qkv);
      alone.describe(one);
      const auto o = alone.make(op.o), lse = alone.make(op.lse);
      one.o = o, one.lse = lse;
      run(HostQueue{}, one);
      alone.expect_same(op.o, o);
      alone.expect_same(op.lse, lse);
    });
  });
}
TYPED_TEST(AttentionIn, BackwardSeesOneDocument) {
  for_cases<AttentionBackward<TypeParam>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    for_documents(op, [&](const Alone& alone) {
      AttentionBackward<TypeParam> one = op;
      one.qkv = alone.rows_of(op.qkv), one.o = alone.rows_of(op.o), one.lse = alone.rows_of(op.lse);
      one.dout = alone.rows_of(op.dout), one.delta = alone.make(op.delta),
      one.next_tile = alone.make(op.next_tile);
      alone.describe(one);
      const auto dqkv = alone.make(op.dqkv);
      one.dqkv = dqkv;
      run(HostQueue{}, one);
      alone.expect_same(op.dqkv, dqkv);
    });
  });
}

TEST(Rope, RotatesByThePositionInTheDocument) {
  for_cases<Rope<float>>(40, [](auto op) {
    const Matrix before(op.qkv);
    const std::int64_t half = op.head_dim / 2;
    std::vector<float> table(static_cast<std::size_t>(op.qkv.rows * op.head_dim));
    run(HostQueue{}, RopeTable{.table = tensor(table.data(), op.qkv.rows, op.head_dim)});
    op.table = tensor(table.data(), op.qkv.rows, op.head_dim);
    run(HostQueue{}, op);
    for (std::int64_t i = 0; i < op.qkv.rows; ++i) {
      for (std::int64_t c = 0; c < op.qkv.cols && op.row_document.data[i] >= 0; ++c) {
        const std::int64_t h = c / op.head_dim, e = c % op.head_dim % half;
        if (h >= op.heads + op.kv_heads) {
          ASSERT_EQ(op.qkv.row(i)[c], before(i, c)) << "v is untouched";
          continue;
        }
        const double angle = op.row_position.data[i] *
                             std::pow(10000.0, -2.0 * static_cast<double>(e) / op.head_dim);
        const double a = before(i, h * op.head_dim + e), b = before(i, h * op.head_dim + e + half);
        const double sn = (op.backward ? -1 : 1) * std::sin(angle), cs = std::cos(angle);
        const double want = c % op.head_dim < half ? a * cs - b * sn : a * sn + b * cs;
        // The frequency carries a few roundings, the angle multiplies them by the position.
        const double bound = plain::kUnit * (8 + 8 * angle + 4) * (std::abs(a) + std::abs(b));
        ASSERT_TRUE(plain::near(op.qkv.row(i)[c], want, bound)) << i << ", " << c;
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
