#include "kernels/ops/cross_entropy.h"
#include "tests/kernels/ops/plain.h"

namespace lockstep {
namespace {

using plain::for_cases;
using plain::Matrix;

double row_loss(const Matrix& x, std::int64_t i, std::int32_t target) {
  double m = x(i, 0), sum = 0;
  for (std::int64_t v = 0; v < x.cols; ++v) m = std::max(m, x(i, v));
  for (std::int64_t v = 0; v < x.cols; ++v) sum += std::exp(x(i, v) - m);
  return m + std::log(sum) - x(i, target);
}

// Each exponential is good to the rounding of its argument and a few units; the sum to V / 1024 +
// 10 more; then three roundings of numbers no larger than the loss and the logits.
TEST(CrossEntropy, ForwardStaysWithinItsBound) {
  for_cases<CrossEntropyForward<float>>(60, [](const auto& op) {
    run(HostQueue{}, op);
    const Matrix x(op.logits);
    const double size = plain::largest(x);
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const std::int32_t target = op.targets.data[i];
      if (target < 0) {
        ASSERT_EQ(bits(op.loss.data[i]) | bits(op.maximum.data[i]) | bits(op.sum.data[i]), 0u);
      } else {
        ASSERT_TRUE(
            plain::near(op.loss.data[i], row_loss(x, i, target), plain::kUnit * (30 + 8 * size)));
      }
    }
  });
}
TEST(CrossEntropy, BackwardIsTheSlope) {
  for_cases<CrossEntropyBackward<float>>(30, [](const auto& op) {
    run(HostQueue{}, op);
    Matrix x(op.logits);
    const Matrix dx(op.dlogits);
    plain::Picker pick(1);
    const double scale = op.state.data->inverse_targets;
    for (int k = 0; k < 30; ++k) {
      const std::int64_t i = pick.below(x.rows);
      const std::int32_t target = op.targets.data[i];
      const std::int64_t v = target >= 0 && k % 2 == 0 ? target : pick.below(x.cols);
      if (target < 0) {
        ASSERT_EQ(bits(op.dlogits.row(i)[v]), 0u);
        continue;
      }
      const double want = scale * plain::slope(x(i, v), [&] { return row_loss(x, i, target); });
      ASSERT_TRUE(plain::near(dx(i, v), want,
                              scale * (plain::kUnit * (60 + 8 * plain::largest(x)) + 1e-8)));
    }
  });
}
// Adding one number to all logits changes nothing where the sums are exact.
TEST(CrossEntropy, IgnoresAShiftOfAllLogits) {
  std::vector<float> x(50), shifted(50), loss(2), maximum(2), sum(2);
  for (std::size_t v = 0; v < 50; ++v)
    x[v] = static_cast<float>(v % 7) * 0.5f, shifted[v] = x[v] + 1024.0f;
  std::int32_t target[] = {3};
  for (std::int64_t k = 0; k < 2; ++k) {
    run(HostQueue{},
        CrossEntropyForward<float>{.logits = tensor(k == 0 ? x.data() : shifted.data(), 1, 50),
                                   .targets = tensor(target, 1, 1),
                                   .loss = tensor(loss.data() + k, 1, 1),
                                   .maximum = tensor(maximum.data() + k, 1, 1),
                                   .sum = tensor(sum.data() + k, 1, 1)});
  }
  EXPECT_EQ(bits(sum[0]), bits(sum[1]));
  EXPECT_EQ(maximum[0] + 1024.0f, maximum[1]);
}
// Blocks of 32 rows, block after block, then one product.
TEST(MicrobatchLoss, IsTheScaledColumnSum) {
  for_cases<MicrobatchLoss>(60, [](const auto& op) {
    run(HostQueue{}, op);
    float sum = 0.0f;
    for (std::int64_t first = 0; first < op.loss.cols; first += 32) {
      float block = 0.0f;
      for (std::int64_t i = first; i < std::min(op.loss.cols, first + 32); ++i)
        block = add(block, op.loss.data[i]);
      sum = add(sum, block);
    }
    ASSERT_EQ(bits(*op.total.data), bits(mul(add(sum, 0.0f), op.state.data->inverse_targets)));
  });
}

}  // namespace
}  // namespace lockstep
