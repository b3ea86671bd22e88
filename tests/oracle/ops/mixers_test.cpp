// Attention and scan against the plain recurrences in double.
#include <gtest/gtest.h>

#include <limits>

#include "oracle/ops/attention.h"
#include "oracle/ops/conv.h"
#include "oracle/ops/scan.h"
#include "tests/oracle/cases.h"

namespace lockstep::oracle {
namespace {

const Mutant kNone;

template <class Real>
Matrix<Real> filled(std::int64_t rows, std::int64_t cols, std::uint32_t seed, double size) {
  Draws numbers(seed);
  Matrix<Real> matrix(rows, cols);
  for (Real& value : matrix.values)
    value = static_cast<Real>(static_cast<float>(size * numbers.next()));
  return matrix;
}

PackedBatch pack_of(const std::vector<std::int64_t>& lengths, std::int64_t rows) {
  Scenario scenario;
  scenario.data.pack_length = rows;
  scenario.data.gaps = 1;
  return make_pack(scenario, documents_of(lengths, 8, 1), kNone);
}

// Largest difference between a and b, rows of no document included.
template <class Real>
double distance(const Matrix<Real>& a, const Matrix<double>& b) {
  double largest = 0;
  for (std::size_t e = 0; e < a.values.size(); ++e) {
    const double difference = std::abs(static_cast<double>(a.values[e]) - b.values[e]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

Matrix<double> plain_attention(const PackedBatch& pack, const AttentionShape& shape,
                               const Matrix<double>& qkv) {
  const std::int64_t hd = shape.head_dim;
  Matrix<double> out(pack.rows, shape.heads * hd);
  for (const Piece& document : pack.documents) {
    for (std::int64_t i = 0; i < document.rows; ++i) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        const std::int64_t kv = h / (shape.heads / shape.kv_heads);
        double sum = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          const double *q = qkv.row(document.first + i) + h * hd,
                       *row = qkv.row(document.first + j);
          double score = 0;
          for (std::int64_t e = 0; e < hd; ++e) score += q[e] * row[(shape.heads + kv) * hd + e];
          const double weight = std::exp(score / std::sqrt(static_cast<double>(hd)));
          sum += weight;
          for (std::int64_t e = 0; e < hd; ++e) {
            out.row(document.first + i)[h * hd + e] +=
                weight * row[(shape.heads + shape.kv_heads + kv) * hd + e];
          }
        }
        for (std::int64_t e = 0; e < hd; ++e) out.row(document.first + i)[h * hd + e] /= sum;
      }
    }
  }
  return out;
}

template <class Policy>
double attention_error(const std::vector<std::int64_t>& lengths) {
  using Real = typename Policy::Real;
  const PackedBatch pack = pack_of(lengths, 110);
  const AttentionShape shape{4, 2, 6};
  const std::int64_t cols = 8 * 6;
  Matrix<Real> out(pack.rows, 24), lse(pack.rows, 4);
  attention<Policy>(pack, shape, filled<Real>(pack.rows, cols, 5, 2.0), out, lse, kNone);
  return distance(out, plain_attention(pack, shape, filled<double>(pack.rows, cols, 5, 2.0)));
}

// Sums of at most 70 terms of size below 2 in double, through an exponential of arguments below 10:
// 1e-12 is ample.
TEST(attention, is_the_plain_softmax) {
  EXPECT_LE(attention_error<Fp64>({0, 1, 31, 0, 70}), 1e-12);
  EXPECT_LE(attention_error<Fp64>({32, 33, 5}), 1e-12);
  EXPECT_LE(attention_error<Fp32>({0, 1, 31, 0, 70}), 2e-5);
}

struct ScanCase {
  ScanShape shape{4, 6, 2, 5, 4};
  Matrix<double> xbc, in_proj;
  std::vector<double> dt_bias{-1, 0.5, 0.1, -2}, a_log{0.1, 1, 2, -1}, d{1, 0.5, -1, 2};
};

// S_t = exp(dt A) S_{t-1} + dt B x; y = C S + D x.
Matrix<double> plain_scan(const PackedBatch& pack, const ScanCase& c) {
  const ScanInput<double> in{c.shape,          c.xbc,          c.in_proj,
                             c.dt_bias.data(), c.a_log.data(), c.d.data()};
  Matrix<double> y(pack.rows, c.shape.inner());
  for (const Piece& document : pack.documents) {
    for (std::int64_t h = 0; h < c.shape.heads; ++h) {
      const std::int64_t g = h / (c.shape.heads / c.shape.groups);
      std::vector<double> s(c.shape.state * c.shape.head_dim);
      for (std::int64_t i = document.first; i < document.first + document.rows; ++i) {
        const double dt = std::log1p(std::exp(in.dt(i, h) + c.dt_bias[h])),
                     decay = std::exp(-std::exp(c.a_log[h]) * dt);
        for (std::int64_t p = 0; p < c.shape.head_dim; ++p) {
          double sum = c.d[h] * in.x(i, h)[p];
          for (std::int64_t n = 0; n < c.shape.state; ++n) {
            double& state = s[n * c.shape.head_dim + p];
            state = decay * state + dt * in.b(i, g)[n] * in.x(i, h)[p];
            sum += in.c(i, g)[n] * state;
          }
          y.row(i)[h * c.shape.head_dim + p] = sum;
        }
      }
    }
  }
  return y;
}

template <class Policy>
double scan_error(const std::vector<std::int64_t>& lengths, std::int64_t chunk) {
  using Real = typename Policy::Real;
  const PackedBatch pack = pack_of(lengths, 64);
  ScanCase c;
  c.shape.chunk = chunk;
  c.xbc = filled<double>(pack.rows, 24 + 20, 3, 1.0);
  c.in_proj = filled<double>(pack.rows, 24 + 44 + 4, 4, 1.0);
  const auto xbc = filled<Real>(pack.rows, 44, 3, 1.0),
             in_proj = filled<Real>(pack.rows, 72, 4, 1.0);
  const std::vector<Real> dt_bias(c.dt_bias.begin(), c.dt_bias.end()),
      a_log(c.a_log.begin(), c.a_log.end());
  const std::vector<Real> d(c.d.begin(), c.d.end());
  Matrix<Real> y(pack.rows, 24);
  scan<Policy>(pack, ScanInput<Real>{c.shape, xbc, in_proj, dt_bias.data(), a_log.data(), d.data()},
               y, kNone);
  return distance(y, plain_scan(pack, c));
}

// Sums of at most 64 terms of size below 4: double rounding stays below 1e-12, fp32 below 1e-4.
TEST(scan, is_the_plain_recurrence) {
  for (const std::int64_t chunk : {4, 5, 16}) {
    EXPECT_LE(scan_error<Fp64>({3, 4, 5, 0, 11, 1, 30}, chunk), 1e-12) << chunk;
    EXPECT_LE(scan_error<Fp32>({3, 4, 5, 0, 11, 1, 30}, chunk), 1e-4) << chunk;
  }
}

// A tap that lies before the document selects nothing: its term is +0 although dpre is infinite.
TEST(conv, weight_gradient_selects_the_taps_of_the_document) {
  const PackedBatch pack = pack_of({1}, 4);
  const std::vector<float> weight{1, 1}, bias{0};
  const Conv<float> conv(weight.data(), bias.data(), 1, 2, kNone);
  Matrix<float> x(4, 1), dy(4, 1), dx(4, 1);
  x.row(0)[0] = 1;
  dy.row(0)[0] = std::numeric_limits<float>::infinity();
  std::vector<float> dweight, dbias;
  conv.backward<Fp32>(pack, {x, 0}, dy, dx, dweight, dbias);
  EXPECT_EQ(dweight[0], 0);
  EXPECT_EQ(dweight[1], std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace lockstep::oracle
