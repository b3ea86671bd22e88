#include "kernels/attention.h"

#include "kernels/rope.h"
#include "tests/kernels/documents.h"
#include "tests/kernels/plain.h"

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
      const std::int64_t kv = h / (op.heads / op.kv_heads), start = op.document_start.data[document];
      const std::int64_t k = (op.heads + kv) * op.head_dim, v = k + op.kv_heads * op.head_dim;
      std::vector<double> p;
      double m = -1e300, l = 0;
      for (std::int64_t j = start; j <= i; ++j) {
        double s = 0;
        for (std::int64_t e = 0; e < op.head_dim; ++e) s += qkv(i, h * op.head_dim + e) * qkv(j, k + e);
        p.push_back(s / std::sqrt(static_cast<double>(op.head_dim)));
        m = std::max(m, p.back());
      }
      for (double& x : p) l += x = std::exp(x - m);
      for (std::int64_t j = start; j <= i; ++j) {
        const double weight = p[static_cast<std::size_t>(j - start)] / l;
        for (std::int64_t e = 0; e < op.head_dim; ++e) o(i, h * op.head_dim + e) += weight * qkv(j, v + e);
      }
      if (lse != nullptr) (*lse)(i, h) = m + std::log(l);
    }
  }
  return o;
}

// A score is a chain of hd products of at most `size`; its error is p's relative error. L terms and some more
// roundings.
TEST(Attention, ForwardStaysWithinItsBound) {
  for_cases<AttentionForward<float>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    const Matrix qkv(op.qkv);
    Matrix lse(qkv.rows, op.heads);
    const Matrix want = attention(op, qkv, &lse);
    const double largest = plain::largest(qkv), hd = op.head_dim;
    const double relative =
        plain::kUnit * ((hd + 4) * std::sqrt(hd) * largest * largest + static_cast<double>(qkv.rows) + 30);
    for (std::int64_t i = 0; i < qkv.rows; ++i) {
      for (std::int64_t h = 0; h < op.heads && op.row_document.data[i] >= 0; ++h) {
        ASSERT_TRUE(plain::near(op.lse.row(i)[h], lse(i, h), relative * (1 + std::abs(lse(i, h)))));
        for (std::int64_t e = 0; e < op.head_dim; ++e) {
          const std::int64_t c = h * op.head_dim + e;
          ASSERT_TRUE(plain::near(op.o.row(i)[c], want(i, c), 2 * relative * largest)) << i << ", " << c;
        }
      }
    }
  });
}

// Fitted: the forward's relative error on terms of the gradient's own size.
TEST(Attention, BackwardIsTheSlope) {
  for_cases<AttentionBackward<float>>(40, [](const auto& op) {
    if (op.qkv.rows > 60 || op.head_dim > 20) return;
    run(HostQueue{}, op);
    Matrix qkv(op.qkv);
    const Matrix dout(op.dout), dqkv(op.dqkv);
    const auto loss = [&] { return plain::weighted(dout, attention(op, qkv), op.row_document.data); };
    plain::expect_slopes(qkv, dqkv, op.row_document.data, loss, 4e-5 * (1 + plain::largest(dqkv)), "dqkv", 24);
  });
}

TEST(Attention, SeesOneDocument) {
  for_cases<AttentionForward<float>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    for_documents(op, [&](const Alone& alone) {
      AttentionForward<float> one = op;
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
TEST(Attention, BackwardSeesOneDocument) {
  for_cases<AttentionBackward<float>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    for_documents(op, [&](const Alone& alone) {
      AttentionBackward<float> one = op;
      one.qkv = alone.rows_of(op.qkv), one.o = alone.rows_of(op.o), one.lse = alone.rows_of(op.lse);
      one.dout = alone.rows_of(op.dout), one.delta = alone.make(op.delta);
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
        const double angle = op.row_position.data[i] * std::pow(10000.0, -2.0 * static_cast<double>(e) / op.head_dim);
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
