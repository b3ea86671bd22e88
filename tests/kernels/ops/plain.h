// Plain mathematics in double to hold the kernels against: generated cases, widened operands,
// slopes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/core/contract.h"
#include "tests/kernels/any_op/any_op.h"

namespace lockstep::plain {

using Numerics = testing::Types<float, bf16>;

// A generated instance in host memory.
template <class Op>
struct Case {
  explicit Case(std::uint64_t seed)
      : made(any_op(op_type<Op>().id, seed, memory)),
        op(*static_cast<const Op*>(made.submission.op())) {}
  HostOpMemory memory;
  OpCase made;
  Op op;
};

// Calls check(case) for generated cases and stops at the first that fails. The check judges every
// case.
template <class Op, class Check>
void for_cases(std::uint64_t count, const Check& check) {
  static_assert(std::is_void_v<decltype(check(std::declval<Op&>()))>,
                "say how many cases must be judged");
  for (std::uint64_t seed = 0; seed < count && !testing::Test::HasFailure(); ++seed) {
    Case<Op> drawn(seed);
    SCOPED_TRACE(drawn.made.name);
    check(drawn.op);
  }
}

// The same where the check passes over some cases: it returns whether it judged one, and must judge
// `at_least` of them.
template <class Op, class Check>
void for_cases(std::uint64_t count, std::uint64_t at_least, const Check& check) {
  static_assert(std::is_same_v<bool, decltype(check(std::declval<Op&>()))>,
                "return whether the case was judged");
  std::uint64_t judged = 0;
  for_cases<Op>(count, [&](auto& op) { judged += check(op); });
  if (testing::Test::HasFailure()) return;
  EXPECT_GE(judged, at_least) << "of " << count << " cases";
}

// The same of those cases that `admits(case)` lets in, of which there must be `at_least`.
template <class Op, class Admits, class Check>
void for_cases(std::uint64_t count, std::uint64_t at_least, const Admits& admits,
               const Check& check) {
  std::uint64_t judged = 0;
  for_cases<Op>(count, [&](auto& op) {
    if (!admits(op)) return;
    ++judged;
    check(op);
  });
  if (testing::Test::HasFailure()) return;
  EXPECT_GE(judged, at_least) << "of " << count << " cases";
}

// A matrix of doubles.
struct Matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(std::int64_t r, std::int64_t c)
      : rows(r), cols(c), values(static_cast<std::size_t>(r * c)) {}
  template <class T, Access kAccess>
  explicit Matrix(const Operand<T, kAccess>& x) : Matrix(x.rows, x.cols) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t c = 0; c < cols; ++c) (*this)(i, c) = load(x.row(i)[c]);
    }
  }
  double& operator()(std::int64_t i, std::int64_t c) {
    return values[static_cast<std::size_t>(i * cols + c)];
  }
  double operator()(std::int64_t i, std::int64_t c) const {
    return values[static_cast<std::size_t>(i * cols + c)];
  }
};

// Largest magnitude among the numbers; padding is NaN and does not count.
inline double largest(const Matrix& x) {
  double m = 0;
  for (double v : x.values) m = std::abs(v) > m ? std::abs(v) : m;
  return m;
}

inline constexpr double kUnit = 0x1p-24;     // Half a unit in the last place of 1.
inline constexpr double kBf16Unit = 0x1p-8;  // The same of a bf16 store.

// Error of a DOT over k in bf16 for terms of this size in all: each step cuts 17 terms at 2^-25 of
// the largest and then the sum at 2^-23.
inline double fda_error(double k, double size) {
  return (k / 16 + 1) * (17 * 0x1p-25 + 0x1p-23) * 1.01 * size + 1e-40;
}

inline testing::AssertionResult near(double got, double want, double bound) {
  if (std::abs(got - want) <= bound) return testing::AssertionSuccess();
  return testing::AssertionFailure() << got << " instead of " << want << ", bound " << bound;
}

// Central difference of loss() in x. In double with this step it is good to about 1e-9 of the
// loss's size.
template <class Loss>
double slope(double& x, const Loss& loss) {
  const double keep = x, h = 1e-5 * std::max(1.0, std::abs(x));
  x = keep + h;
  const double up = loss();
  x = keep - h;
  const double down = loss();
  x = keep;
  return (up - down) / (2 * h);
}

class Picker {
 public:
  explicit Picker(std::uint64_t seed) : state_(seed) {}
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(mix64(state_ += 0x9E3779B97F4A7C15u) %
                                     static_cast<std::uint64_t>(n));
  }

 private:
  std::uint64_t state_;
};

// Compares `count` elements of a gradient with the slopes of loss() in the operand they belong to.
// Rows of no document must hold +0. `bound` is absolute.
template <class Loss>
void expect_slopes(Matrix& x, const Matrix& gradient, const std::int32_t* row_document,
                   const Loss& loss, double bound, const char* what, int count = 10) {
  Picker pick(x.values.size());
  for (int k = 0; k < count; ++k) {
    const std::int64_t i = pick.below(x.rows), c = pick.below(x.cols);
    if (row_document != nullptr && row_document[i] < 0) {
      ASSERT_TRUE(gradient(i, c) == 0 && !std::signbit(gradient(i, c)))
          << what << "[" << i << ", " << c << "]";
    } else {
      ASSERT_TRUE(near(gradient(i, c), slope(x(i, c), loss), bound))
          << what << "[" << i << ", " << c << "]";
    }
  }
}

// sum of weight * y over rows of documents.
inline double weighted(const Matrix& weight, const Matrix& y, const std::int32_t* row_document) {
  double sum = 0;
  for (std::int64_t i = 0; i < y.rows; ++i) {
    for (std::int64_t c = 0; row_document[i] >= 0 && c < y.cols; ++c) sum += weight(i, c) * y(i, c);
  }
  return sum;
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }

}  // namespace lockstep::plain
