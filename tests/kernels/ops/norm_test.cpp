// RMSNorm and the gated grouped RMSNorm against plain formulas in double.
#include "kernels/ops/gated_norm.h"
#include "kernels/ops/rms_norm.h"
#include "tests/kernels/ops/plain.h"

namespace lockstep {
namespace {

using plain::for_cases;
using plain::Matrix;

Matrix rms_norm(const Matrix& x, const Matrix& gain, double eps, std::int64_t groups) {
  Matrix y(x.rows, x.cols);
  const std::int64_t width = x.cols / groups;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t g = 0; g < groups; ++g) {
      double sum = 0;
      for (std::int64_t c = g * width; c < (g + 1) * width; ++c) sum += x(i, c) * x(i, c);
      const double rstd = 1 / std::sqrt(sum / static_cast<double>(width) + eps);
      for (std::int64_t c = g * width; c < (g + 1) * width; ++c)
        y(i, c) = x(i, c) * rstd * gain(0, c);
    }
  }
  return y;
}
Matrix gated(const Matrix& y, const Matrix& z) {
  Matrix u(y.rows, y.cols);
  for (std::size_t e = 0; e < u.values.size(); ++e)
    u.values[e] = y.values[e] * plain::silu(z.values[e]);
  return u;
}

// d squares, a division, an addition, a root (which halves what came before), a reciprocal and two
// products.
TEST(RmsNorm, StaysWithinItsBound) {
  for_cases<RmsNormForward<float>>(60, [](const auto& op) {
    run(HostQueue{}, op);
    const Matrix want = rms_norm(Matrix(op.x), Matrix(op.gain), op.eps, 1);
    for (std::int64_t i = 0; i < op.x.rows; ++i) {
      for (std::int64_t c = 0; c < op.x.cols && op.row_document.data[i] >= 0; ++c) {
        const double bound =
            (static_cast<double>(op.x.cols) / 2 + 6) * plain::kUnit * std::abs(want(i, c)) + 1e-44;
        ASSERT_TRUE(plain::near(op.y.row(i)[c], want(i, c), bound));
      }
    }
  });
}
// Without eps the result may not change a bit when x is scaled by a power of two.
TEST(RmsNorm, IsUnchangedWhenXIsScaledByAPowerOfTwo) {
  for_cases<RmsNormForward<float>>(30, [](auto op) {
    std::vector<float> x, y(static_cast<std::size_t>(op.x.rows * op.x.cols));
    for (std::int64_t i = 0; i < op.x.rows; ++i) {
      for (std::int64_t c = 0; c < op.x.cols; ++c)
        x.push_back(std::abs(op.x.row(i)[c]) > 1e-3f ? op.x.row(i)[c] : 1.0f);
    }
    op.eps = 1e-38f;  // Disappears beside any mean of these squares.
    op.x = tensor(x.data(), op.x.rows, op.x.cols);
    run(HostQueue{}, op);
    for (float& v : x) v *= 8;
    const Out<float> before = op.y;
    op.y = tensor(y.data(), op.x.rows, op.x.cols);
    run(HostQueue{}, op);
    for (std::int64_t i = 0; i < op.x.rows; ++i) {
      for (std::int64_t c = 0; c < op.x.cols; ++c)
        ASSERT_EQ(bits(op.y.row(i)[c]), bits(before.row(i)[c]));
    }
  });
}
// The bound is fitted: roundings of u, v, their sum and four products, on terms no larger than |dy
// gain| rstd d.
TEST(RmsNorm, BackwardIsTheSlope) {
  for_cases<RmsNormBackward<float>>(30, 25, [](auto op) {
    Matrix x(op.x), gain(op.gain);
    const Matrix dy(op.dy);
    const double eps = 1e-5;
    std::vector<float> rstd(static_cast<std::size_t>(x.rows));
    for (std::int64_t i = 0; i < x.rows; ++i) {
      double sum = 0;
      for (std::int64_t c = 0; c < x.cols; ++c) sum += x(i, c) * x(i, c);
      rstd[static_cast<std::size_t>(i)] =
          static_cast<float>(1 / std::sqrt(sum / static_cast<double>(x.cols) + eps));
    }
    if (*std::max_element(rstd.begin(), rstd.end()) > 20)
      return false;  // A nearly zero row has slopes without a scale.
    op.rstd = tensor(rstd.data(), 1, x.rows);
    run(HostQueue{}, op);
    Matrix dx(op.dx);
    for (std::int64_t i = 0; i < x.rows && op.dresidual; ++i) {
      for (std::int64_t c = 0; c < x.cols && op.row_document.data[i] >= 0; ++c)
        dx(i, c) -= op.dresidual.row(i)[c];
    }
    const auto loss = [&] {
      return plain::weighted(dy, rms_norm(x, gain, eps, 1), op.row_document.data);
    };
    const double bound =
        (static_cast<double>(x.cols) + 20) * plain::kUnit * 20 * (1 + plain::largest(dx)) + 1e-7;
    plain::expect_slopes(x, dx, op.row_document.data, loss, bound, "dx");
    const double rows = static_cast<double>(x.rows);
    plain::expect_slopes(gain, Matrix(op.dgain), nullptr, loss,
                         (rows + 20) * plain::kUnit * 40 * rows, "dgain");
    return true;
  });
}

// Blocks of 32 physical rows, then the blocks; rows of no document add nothing.
TEST(RmsNorm, GainGradientIsAColumnSum) {
  for_cases<RmsNormBackward<float>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t c = 0; c < op.x.cols; ++c) {
      float sum = 0.0f;
      for (std::int64_t first = 0; first < op.x.rows; first += 32) {
        float block = 0.0f;
        for (std::int64_t i = first; i < std::min(op.x.rows, first + 32); ++i) {
          if (op.row_document.data[i] >= 0)
            block = fma(op.dy.row(i)[c], mul(op.x.row(i)[c], op.rstd.data[i]), block);
        }
        sum = add(sum, block);
      }
      ASSERT_EQ(bits(op.dgain.data[c]), bits(add(sum, 0.0f))) << c;
    }
  });
}

TEST(GatedNorm, StaysWithinItsBound) {
  for_cases<GatedNormForward<float>>(60, [](const auto& op) {
    run(HostQueue{}, op);
    const Matrix want =
        rms_norm(gated(Matrix(op.y), Matrix(op.z)), Matrix(op.gain), op.eps, op.groups);
    for (std::int64_t i = 0; i < op.y.rows; ++i) {
      for (std::int64_t c = 0; c < op.y.cols && op.row_document.data[i] >= 0; ++c) {
        const double bound =
            (static_cast<double>(op.y.cols) + 24) * plain::kUnit * std::abs(want(i, c)) + 1e-40;
        ASSERT_TRUE(plain::near(op.o.row(i)[c], want(i, c), bound));
      }
    }
  });
}
TEST(GatedNorm, BackwardIsTheSlope) {
  for_cases<GatedNormBackward<float>>(30, 25, [](auto op) {
    Matrix y(op.y), z(op.z), gain(op.gain);
    const Matrix dout(op.dout), u = gated(y, z);
    const double eps = 1e-5;
    const std::int64_t width = y.cols / op.groups;
    std::vector<float> rstd(static_cast<std::size_t>(y.rows * op.groups));
    for (std::int64_t i = 0; i < y.rows * op.groups; ++i) {
      double sum = 0;
      for (std::int64_t c = 0; c < width; ++c) {
        sum += u(i / op.groups, i % op.groups * width + c) *
               u(i / op.groups, i % op.groups * width + c);
      }
      rstd[static_cast<std::size_t>(i)] =
          static_cast<float>(1 / std::sqrt(sum / static_cast<double>(width) + eps));
    }
    if (*std::max_element(rstd.begin(), rstd.end()) > 20) return false;
    op.rstd = tensor(rstd.data(), y.rows, op.groups);
    run(HostQueue{}, op);
    const auto loss = [&] {
      return plain::weighted(dout, rms_norm(gated(y, z), gain, eps, op.groups),
                             op.row_document.data);
    };
    const double size = (static_cast<double>(y.cols) + 30) * plain::kUnit * 20;
    const Matrix dy(op.dy), dz(op.dz);
    plain::expect_slopes(y, dy, op.row_document.data, loss, size * (1 + plain::largest(dy)) + 1e-7,
                         "dy");
    plain::expect_slopes(z, dz, op.row_document.data, loss, size * (1 + plain::largest(dz)) + 1e-7,
                         "dz");
    const double rows = static_cast<double>(y.rows);
    plain::expect_slopes(gain, Matrix(op.dgain), nullptr, loss,
                         (rows + 30) * plain::kUnit * 60 * rows, "dgain");
    return true;
  });
}

}  // namespace
}  // namespace lockstep
