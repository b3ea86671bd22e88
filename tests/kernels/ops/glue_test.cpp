// Ops that work element by element: embedding, residual with dropout, activations.
#include "kernels/ops/activation.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/residual.h"
#include "tests/kernels/ops/plain.h"

namespace lockstep {
namespace {

using plain::for_cases;
using plain::Matrix;

// The decision of drop() about an element, one Philox block for each.
template <class Op>
float dropped(const Op& op, std::int64_t i, std::int64_t c, float x) {
  return drop(op.dropout, *op.state.data, static_cast<std::uint32_t>(op.row_number.data[i]),
              static_cast<std::uint32_t>(op.row_position.data[i]), static_cast<std::uint32_t>(c),
              x);
}

TEST(Embedding, CopiesTheRowOfItsToken) {
  for_cases<EmbeddingForward<float>>(60, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t i = 0; i < op.y.rows; ++i) {
      for (std::int64_t c = 0; c < op.y.cols; ++c) {
        const bool padding = op.row_document.data[i] < 0;
        const float want = padding ? 0.0f : dropped(op, i, c, op.weight.row(op.tokens.data[i])[c]);
        ASSERT_EQ(bits(op.y.row(i)[c]), bits(want));
      }
    }
  });
}
TEST(Embedding, GradientAddsTheRowsOfAToken) {
  for_cases<EmbeddingBackward<float>>(120, [](const auto& op) {
    const std::int64_t d = op.dy.cols;
    std::vector<float> before;
    for (std::int64_t v = 0; v < op.acc.rows; ++v)
      before.insert(before.end(), op.acc.row(v), op.acc.row(v) + d);
    run(HostQueue{}, op);
    const auto result = op.acc ? In<float>(op.acc) : In<float>(op.dweight);
    for (std::int64_t v = 0; v < result.rows; ++v) {
      for (std::int64_t c = 0; c < d; ++c) {
        float want = 0.0f;
        bool found = false;
        for (std::int64_t i = 0; i < op.dy.rows; ++i) {
          if (op.row_document.data[i] < 0 || op.tokens.data[i] != v) continue;
          found = true;
          want = add(want, dropped(op, i, c, op.dy.row(i)[c]));
        }
        want = add(want, 0.0f);
        const std::int64_t e = v * d + c;
        if (op.acc) want = found ? add(before[e], want) : before[e];
        ASSERT_EQ(bits(result.row(v)[c]), bits(want)) << v << ", " << c;
      }
    }
  });
}
TEST(Residual, AddsTheDroppedOutput) {
  for_cases<ResidualForward<float>>(60, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t i = 0; i < op.out.rows; ++i) {
      for (std::int64_t c = 0; c < op.out.cols; ++c) {
        const bool padding = op.row_document.data[i] < 0;
        const float want =
            padding ? 0.0f : add(op.residual.row(i)[c], dropped(op, i, c, op.y.row(i)[c]));
        ASSERT_EQ(bits(op.out.row(i)[c]), bits(want));
      }
    }
  });
}
TEST(Residual, BackwardDropsTheSameElements) {
  for_cases<ResidualBackward<float>>(60, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t i = 0; i < op.dy.rows; ++i) {
      for (std::int64_t c = 0; c < op.dy.cols; ++c) {
        const float want =
            op.row_document.data[i] < 0 ? 0.0f : dropped(op, i, c, op.dout.row(i)[c]);
        ASSERT_EQ(bits(op.dy.row(i)[c]), bits(want));
      }
    }
  });
}
// 6 standard deviations of a binomial: fails once in 10^8 seeds, and the seed is fixed.
TEST(Dropout, KeepsTheShareItShould) {
  const double p = 0.3;
  const Dropout d{.active = true,
                  .site = 5,
                  .threshold = static_cast<std::uint32_t>(p * 4294967296.0),
                  .scale = 2};
  const StepState s{.seed_low = 7, .step = 3};
  int kept = 0;
  const int count = 100000;
  for (int e = 0; e < count; ++e) {
    kept += drop(d, s, 2, static_cast<std::uint32_t>(e / 100), static_cast<std::uint32_t>(e % 100),
                 1.0f) != 0.0f
                ? 1
                : 0;
  }
  EXPECT_TRUE(plain::near(kept, (1 - p) * count, 6 * std::sqrt(p * (1 - p) * count)));
}

Matrix activation(Activation kind, const Matrix& h, std::int64_t width) {
  Matrix a(h.rows, width);
  for (std::int64_t i = 0; i < h.rows; ++i) {
    for (std::int64_t c = 0; c < width; ++c) {
      const double x = h(i, c);
      a(i, c) = kind == Activation::swiglu ? plain::silu(x) * h(i, width + c) : x > 0 ? x * x : 0;
    }
  }
  return a;
}
// A sigmoid of a few units, and two products.
TEST(Activation, ForwardStaysWithinItsBound) {
  for_cases<ActivationForward<float>>(60, [](const auto& op) {
    run(HostQueue{}, op);
    const Matrix h(op.h);
    const Matrix want = activation(op.kind, h, op.a.cols);
    const double last = 1.5e-45 * (1 + plain::largest(h)) *
                        (1 + plain::largest(h));  // For a gate that is subnormal.
    for (std::int64_t i = 0; i < want.rows; ++i) {
      for (std::int64_t c = 0; c < want.cols && op.row_document.data[i] >= 0; ++c) {
        ASSERT_TRUE(plain::near(op.a.row(i)[c], want(i, c),
                                16 * plain::kUnit * std::abs(want(i, c)) + last));
      }
    }
  });
}
// Slopes near the corner of the squared ReLU are off by the step of the difference, 1e-5.
TEST(Activation, BackwardIsTheSlope) {
  for_cases<ActivationBackward<float>>(60, [](const auto& op) {
    run(HostQueue{}, op);
    Matrix h(op.h);
    const Matrix da(op.da);
    const auto loss = [&] {
      return plain::weighted(da, activation(op.kind, h, da.cols), op.row_document.data);
    };
    const double bound = 40 * plain::kUnit * (1 + plain::largest(h)) * (1 + plain::largest(da)) +
                         2e-5 * plain::largest(da);
    plain::expect_slopes(h, Matrix(op.dh), op.row_document.data, loss, bound, "dh", 20);
  });
}

}  // namespace
}  // namespace lockstep
