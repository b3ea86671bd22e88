#include "kernels/ops/linear.h"

#include "kernels/core/fda16.h"
#include "tests/kernels/ops/plain.h"

namespace lockstep {
namespace {

using plain::for_cases;

// One chain, term after term, as the text writes it.
template <class A, class B>
float chain(std::int64_t k, const A& a, const B& b) {
  float c = 0.0f;
  for (std::int64_t e = 0; e < k; ++e) c = fma(a(e), b(e), c);
  return add(c, 0.0f);
}
// y[i, o] has the bits of the chain over k, and lies within gamma_k of the exact sum.
template <class A, class B>
void expect_product(Out<float> y, std::int64_t k, const A& a, const B& b) {
  for (std::int64_t i = 0; i < y.rows; ++i) {
    for (std::int64_t o = 0; o < y.cols; ++o) {
      const auto x = [&](std::int64_t e) { return a(i, e); };
      const auto w = [&](std::int64_t e) { return b(e, o); };
      ASSERT_EQ(bits(y.row(i)[o]), bits(chain(k, x, w))) << i << ", " << o;
      double exact = 0, size = 0;
      for (std::int64_t e = 0; e < k; ++e)
        exact += double{x(e)} * w(e), size += std::abs(double{x(e)} * w(e));
      ASSERT_TRUE(plain::near(y.row(i)[o], exact,
                              static_cast<double>(k + 1) * plain::kUnit * size + 1e-44));
    }
  }
}

// With an accumulator: the gradient by itself, then one add.
template <class T>
void expect_one_add(LinearWeightGradient<T> op) {
  const plain::Matrix before(op.acc);
  std::vector<float> dw(static_cast<std::size_t>(op.acc.rows * op.acc.cols));
  LinearWeightGradient<T> apart = op;
  apart.acc = {};
  apart.dw = tensor(dw.data(), op.acc.rows, op.acc.cols);
  run(HostQueue{}, apart);
  run(HostQueue{}, op);
  for (std::int64_t o = 0; o < op.acc.rows; ++o) {
    for (std::int64_t k = 0; k < op.acc.cols; ++k) {
      const float want = add(static_cast<float>(before(o, k)), apart.dw.row(o)[k]);
      ASSERT_EQ(bits(op.acc.row(o)[k]), bits(want)) << o << ", " << k;
    }
  }
}
TEST(Linear, ForwardIsAChainOverInputs) {
  for_cases<LinearForward<float>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    expect_product(
        op.y, op.x.cols, [&](auto i, auto k) { return op.x.row(i)[k]; },
        [&](auto k, auto o) { return op.w.row(o)[k]; });
  });
}
TEST(Linear, InputGradientIsAChainOverOutputs) {
  for_cases<LinearInputGradient<float>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    expect_product(
        op.dx, op.dy.cols, [&](auto i, auto o) { return op.dy.row(i)[o]; },
        [&](auto o, auto k) { return op.w.row(o)[k]; });
  });
}
TEST(Linear, WeightGradientIsAChainOverPhysicalRows) {
  for_cases<LinearWeightGradient<float>>(40, [](const auto& op) {
    if (!op.dw) return expect_one_add(op);
    run(HostQueue{}, op);
    expect_product(
        op.dw, op.dy.rows, [&](auto o, auto i) { return op.dy.row(i)[o]; },
        [&](auto i, auto k) { return op.x.row(i)[k]; });
  });
}
// The same three in bf16: one chain of FDA16 steps, k16 groups from the first term, then one store.
template <class Result, class A, class B>
void expect_bf16_product(Out<Result> y, std::int64_t k, const A& a, const B& b) {
  std::vector<float> x(static_cast<std::size_t>(k)), w(x);
  for (std::int64_t i = 0; i < y.rows; ++i) {
    for (std::int64_t o = 0; o < y.cols; ++o) {
      double exact = 0, size = 0;
      for (std::int64_t e = 0; e < k; ++e) {
        const float u = x[static_cast<std::size_t>(e)] = load(a(i, e)),
                    v = w[static_cast<std::size_t>(e)] = load(b(e, o));
        exact += double{u} * v, size += std::abs(double{u} * v);
      }
      const float got = load(y.row(i)[o]),
                  sum = fda_chain(kSm90, 0, k, x.data(), 1, w.data(), 1, 0.0f);
      ASSERT_EQ(bits(got), bits(load(st<Result>(sum)))) << i << ", " << o;
      const double store = std::is_same_v<Result, bf16> ? plain::kBf16Unit : 0;
      const double error = plain::fda_error(static_cast<double>(k), size);
      ASSERT_TRUE(plain::near(got, exact, error + store * (std::abs(exact) + error)))
          << i << ", " << o;
    }
  }
}
TEST(LinearBf16, ForwardIsAChainOverInputs) {
  for_cases<LinearForward<bf16>>(25, [](const auto& op) {
    run(HostQueue{}, op);
    expect_bf16_product(
        op.y, op.x.cols, [&](auto i, auto k) { return op.x.row(i)[k]; },
        [&](auto k, auto o) { return op.w.row(o)[k]; });
  });
}
TEST(LinearBf16, InputGradientIsAChainOverOutputs) {
  for_cases<LinearInputGradient<bf16>>(25, [](const auto& op) {
    run(HostQueue{}, op);
    expect_bf16_product(
        op.dx, op.dy.cols, [&](auto i, auto o) { return op.dy.row(i)[o]; },
        [&](auto o, auto k) { return op.w.row(o)[k]; });
  });
}
TEST(LinearBf16, WeightGradientIsAChainOverPhysicalRows) {
  for_cases<LinearWeightGradient<bf16>>(25, [](const auto& op) {
    if (!op.dw) return expect_one_add(op);
    run(HostQueue{}, op);
    expect_bf16_product(
        op.dw, op.dy.rows, [&](auto o, auto i) { return op.dy.row(i)[o]; },
        [&](auto i, auto k) { return op.x.row(i)[k]; });
  });
}
// A chain longer than one visit of its accumulator.
TEST(Linear, LongChainsContinueExactly) {
  for (const std::int64_t k : {255, 256, 257, 1000}) {
    std::vector<float> x(static_cast<std::size_t>(7 * k)), w(static_cast<std::size_t>(18 * k)),
        y(7 * 18);
    plain::Picker pick(static_cast<std::uint64_t>(k));
    for (float& v : x) v = static_cast<float>(pick.below(2000) - 1000) * 0.0113f;
    for (float& v : w) v = static_cast<float>(pick.below(2000) - 1000) * 0.0371f;
    const LinearForward<float> op{
        .x = tensor(x.data(), 7, k), .w = tensor(w.data(), 18, k), .y = tensor(y.data(), 7, 18)};
    run(HostQueue{}, op);
    expect_product(
        op.y, k, [&](auto i, auto e) { return op.x.row(i)[e]; },
        [&](auto e, auto o) { return op.w.row(o)[e]; });
  }
}
// Powers of two only move exponents.
TEST(Linear, ScalesWithPowersOfTwo) {
  for_cases<LinearForward<float>>(20, [](const auto& op) {
    run(HostQueue{}, op);
    std::vector<float> x, y(static_cast<std::size_t>(op.y.rows * op.y.cols));
    for (std::int64_t i = 0; i < op.x.rows; ++i) {
      for (std::int64_t k = 0; k < op.x.cols; ++k)
        x.push_back(std::abs(op.x.row(i)[k]) < 1e-9f ? 1.0f : op.x.row(i)[k]);
    }
    LinearForward<float> other = op;
    other.x = tensor(x.data(), op.x.rows, op.x.cols);
    run(HostQueue{}, other);
    const plain::Matrix before(op.y);
    for (float& v : x) v *= 8;
    other.y = tensor(y.data(), op.y.rows, op.y.cols);
    run(HostQueue{}, other);
    for (std::int64_t i = 0; i < op.y.rows; ++i) {
      for (std::int64_t o = 0; o < op.y.cols; ++o) {
        if (std::abs(before(i, o)) < 1e-20) continue;  // Subnormal links would round elsewhere.
        ASSERT_EQ(other.y.row(i)[o], 8 * before(i, o));
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
