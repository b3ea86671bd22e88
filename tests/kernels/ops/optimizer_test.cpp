// Gradient accumulation, norm, AdamW, initial values, digest.
#include "kernels/ops/optimizer.h"

#include "kernels/diagnostics/digest.h"
#include "kernels/ops/accumulate.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/gated_norm.h"
#include "kernels/ops/initialize.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/ops/scan.h"
#include "tests/kernels/ops/plain.h"

namespace lockstep {
namespace {

using plain::for_cases;
using plain::Matrix;

TEST(AccumulateGradient, AddsEachTermOnceInOrder) {
  for_cases<AccumulateGradient>(30, [](const auto& op) {
    const Matrix before(op.acc);
    run(HostQueue{}, op);
    for (std::int64_t i = 0; i < op.acc.rows; ++i) {
      for (std::int64_t c = 0; c < op.acc.cols; ++c) {
        auto want = static_cast<float>(before(i, c));
        for (std::int64_t row = i; row < op.g.rows; row += op.acc.rows)
          want = add(want, op.g.row(row)[c]);
        ASSERT_EQ(bits(op.acc.row(i)[c]), bits(want));
      }
    }
  });
}
// An op that makes this add itself: each total is its old value and the gradient that the op wrote.
template <class Op, class Pairs>
void expect_one_add(const Pairs& pairs) {
  for_cases<Op>(40, 10, [&](const auto& op) {
    std::vector<Matrix> before;
    for (const auto& [gradient, total] : pairs(op)) before.emplace_back(total);
    run(HostQueue{}, op);
    bool adds = false;
    auto old = before.begin();
    for (const auto& [gradient, total] : pairs(op)) {
      for (std::int64_t i = 0; total && i < total.rows; ++i) {
        for (std::int64_t c = 0; c < total.cols; ++c) {
          const float want = add(static_cast<float>((*old)(i, c)), gradient.row(i)[c]);
          EXPECT_EQ(bits(total.row(i)[c]), bits(want));
        }
      }
      adds = adds || total;
      ++old;
    }
    return adds;
  });
}
using Pair = std::pair<In<float>, Accum<float>>;
TEST(GradientTotals, AreAddedToOnce) {
  const auto gain = [](const auto& op) { return std::vector<Pair>{{op.dgain, op.total}}; };
  expect_one_add<RmsNormBackward<float>>(gain);
  expect_one_add<RmsNormBackward<bf16>>(gain);
  expect_one_add<GatedNormBackward<bf16>>(gain);
  expect_one_add<ConvBackward<bf16>>([](const auto& op) {
    return std::vector<Pair>{{op.dweight, op.weight_total}, {op.dbias, op.bias_total}};
  });
  expect_one_add<ScanBackward<float>>([](const auto& op) {
    return std::vector<Pair>{
        {op.ddt_bias, op.dt_bias_total}, {op.da_log, op.a_log_total}, {op.dd, op.d_total}};
  });
}
TEST(ZeroGradient, WritesPlusZero) {
  for_cases<ZeroGradient>(10, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t i = 0; i < op.acc.rows; ++i) {
      for (std::int64_t c = 0; c < op.acc.cols; ++c) ASSERT_EQ(bits(op.acc.row(i)[c]), 0u);
    }
  });
}
// A square and at most cols / 128 + 8 additions of positive numbers.
TEST(GradientRowSums, StaysWithinItsBound) {
  for_cases<GradientRowSums>(60, [](const auto& op) {
    run(HostQueue{}, op);
    const Matrix g(op.g);
    for (std::int64_t i = 0; i < g.rows; ++i) {
      double sum = 0;
      for (std::int64_t c = 0; c < g.cols; ++c) sum += g(i, c) * g(i, c);
      const double bound = (static_cast<double>(g.cols) / 128 + 10) * plain::kUnit * sum + 1e-44;
      ASSERT_TRUE(plain::near(op.sums.data[i], sum, bound));
    }
  });
}
TEST(OrderRowSums, MovesEachToItsPlace) {
  for_cases<OrderRowSums>(20, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t e = 0; e < op.to.cols; ++e) {
      ASSERT_EQ(bits(op.to.data[e]), bits(op.from.data[op.order.data[e]]));
    }
  });
}
TEST(GradientNorm, ClipsAboveTheMaximum) {
  for_cases<GradientNorm>(60, [](auto op) {
    double sum = 0;
    for (std::int64_t i = 0; i < op.sums.cols; ++i) sum += op.sums.data[i];
    for (const double factor : {0.0, 0.5, 2.0}) {
      op.max_norm = static_cast<float>(factor * std::sqrt(sum));
      run(HostQueue{}, op);
      ASSERT_TRUE(plain::near(op.norm.data[0], std::sqrt(sum), 20 * plain::kUnit * std::sqrt(sum)));
      ASSERT_TRUE(plain::near(op.norm.data[1], factor == 0.5 ? 0.5 : 1.0,
                              factor == 0.5 ? 30 * plain::kUnit : 0));
    }
  });
}
// A dozen roundings; the update is at most the learning rate times u.
TEST(AdamW, StaysWithinItsBound) {
  for_cases<AdamW>(60, [](const auto& op) {
    Matrix w(op.w), m(op.m), v(op.v);
    run(HostQueue{}, op);
    const StepState& s = *op.state.data;
    for (std::int64_t i = 0; i < w.rows; ++i) {
      for (std::int64_t c = 0; c < w.cols; ++c) {
        const double g = double{op.g.row(i)[c]} * op.norm.data[1];
        const double m_new = op.beta1 * m(i, c) + op.one_minus_beta1 * g,
                     m_size = std::abs(m(i, c)) + std::abs(g);
        const double v_new = op.beta2 * v(i, c) + op.one_minus_beta2 * g * g;
        const double root = std::sqrt(v_new * s.bias_correction2) + op.eps;
        const double u = m_new * s.bias_correction1 / root + op.weight_decay * w(i, c);
        const double u_size = m_size * s.bias_correction1 / root + std::abs(w(i, c));
        ASSERT_TRUE(plain::near(op.m.row(i)[c], m_new, 4 * plain::kUnit * m_size + 1e-44));
        ASSERT_TRUE(plain::near(op.v.row(i)[c], v_new, 6 * plain::kUnit * v_new + 1e-44));
        const double bound = plain::kUnit * (2 * std::abs(w(i, c)) + 20 * s.learning_rate * u_size);
        ASSERT_TRUE(plain::near(op.w.row(i)[c], w(i, c) - s.learning_rate * u, bound + 1e-40));
      }
    }
  });
}
TEST(AdamW, CopiesTheNewWeights) {
  int copies = 0;
  for_cases<AdamW>(30, [&](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t i = 0; op.copy && i < op.w.rows; ++i) {
      for (std::int64_t c = 0; c < op.w.cols; ++c)
        ASSERT_EQ(op.copy.row(i)[c].bits, bf16_bits(op.w.row(i)[c]));
    }
    copies += op.copy ? 1 : 0;
  });
  EXPECT_TRUE(copies > 5 && copies < 25) << copies;
}
TEST(RoundWeights, CopiesToNearestEven) {
  for_cases<RoundWeights>(20, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t i = 0; i < op.w.rows; ++i) {
      for (std::int64_t c = 0; c < op.w.cols; ++c) {
        const double w = op.w.row(i)[c], copy = load(op.copy.row(i)[c]);
        ASSERT_TRUE(plain::near(copy, w, plain::kBf16Unit * std::abs(w)));
        ASSERT_EQ(op.copy.row(i)[c].bits, bf16_bits(op.w.row(i)[c]));
      }
    }
  });
}

// 6 standard deviations of the mean and of the variance of 40000 draws.
TEST(Initialize, NormalHasItsMeanAndDeviation) {
  std::vector<float> w(40000);
  run(HostQueue{},
      Initialize{
          .w = tensor(w.data(), 200, 200), .kind = Init::normal, .std = 0.02f, .parameter = 3});
  double mean = 0, square = 0;
  for (float x : w) mean += x / 40000.0, square += double{x} * x / 40000;
  EXPECT_TRUE(plain::near(mean, 0, 6 * 0.02 / 200));
  EXPECT_TRUE(plain::near(square / 4e-4, 1, 6 * std::sqrt(2.0) / 200));
}
TEST(Initialize, StaysInItsRange) {
  const auto range = [](Init kind) {
    std::vector<float> w(5000);
    run(HostQueue{}, Initialize{.w = tensor(w.data(), 1, 5000), .kind = kind, .width = 4});
    const auto [low, high] = std::minmax_element(w.begin(), w.end());
    return std::pair{*low, *high};
  };
  const auto near_range = [&](Init kind, double low, double high) {
    const auto [got_low, got_high] = range(kind);
    const double slack = 0.003 * (high - low);  // 5000 uniform draws come this close to both ends.
    EXPECT_TRUE(got_low >= low - 1e-5 && got_low <= low + slack) << got_low << " " << low;
    EXPECT_TRUE(got_high <= high + 1e-5 && got_high >= high - slack) << got_high << " " << high;
  };
  near_range(Init::conv_weight, -0.5, 0.5);
  near_range(Init::dt_bias, std::log(std::expm1(0.001)), std::log(std::expm1(0.1)));
  EXPECT_TRUE(range(Init::a_log).first >= 0 && range(Init::a_log).second <= std::log(16.0) + 1e-6);
  EXPECT_EQ(range(Init::one), (std::pair{1.0f, 1.0f}));
  EXPECT_EQ(range(Init::zero), (std::pair{0.0f, 0.0f}));
}
TEST(Initialize, DependsOnTheElementAndNotOnTheShape) {
  std::vector<float> a(60), b(60);
  run(HostQueue{},
      Initialize{.w = tensor(a.data(), 6, 10), .kind = Init::normal, .std = 1, .seed_low = 9});
  run(HostQueue{},
      Initialize{.w = tensor(b.data(), 4, 15), .kind = Init::normal, .std = 1, .seed_low = 9});
  EXPECT_EQ(a, b);
}
TEST(Initialize, OfSomeRowsIsThatOfTheWhole) {
  std::vector<float> whole(70), rows(28);
  run(HostQueue{},
      Initialize{.w = tensor(whole.data(), 10, 7), .kind = Init::normal, .std = 1, .parameter = 3});
  run(HostQueue{}, Initialize{.w = tensor(rows.data(), 4, 7),
                              .first = 35,
                              .kind = Init::normal,
                              .std = 1,
                              .parameter = 3});
  EXPECT_TRUE(std::equal(rows.begin(), rows.end(), whole.begin() + 35));
}

// A weight of 2^24 elements takes too long for a scenario. Four elements take one block of Philox,
// whose number has more than 32 bits from element 2^34 on.
TEST(Initialize, AnElementFarIntoAParameterTakesItsOwnBlock) {
  constexpr std::int64_t kCount = 12;
  for (const int power : {0, 24, 26, 31, 32, 34, 35}) {
    const std::int64_t first = (std::int64_t{1} << power) - 1;
    std::vector<float> w(kCount);
    run(HostQueue{}, Initialize{.w = tensor(w.data(), 1, kCount),
                                .first = first,
                                .kind = Init::conv_weight,
                                .width = 4,
                                .parameter = 6,
                                .seed_low = 5,
                                .seed_high = 8});
    for (std::int64_t i = 0; i < kCount; ++i) {
      const std::int64_t e = first + i;
      const Philox block = philox(5, 8, static_cast<std::uint32_t>(e / 4),
                                  static_cast<std::uint32_t>(e / 4 >> 32), 6, 0x494e4954u);
      ASSERT_EQ(w.at(static_cast<std::size_t>(i)), uniform(block.word[e % 4]) - 0.5f)
          << "2^" << power << " + " << i - 1;
    }
  }
}

TEST(Digest, KnowsThePlaceOfAnElement) {
  const auto digest = [](std::vector<float> values, std::uint64_t tensor_id) {
    std::vector<std::uint64_t> sums(2);
    const auto n = static_cast<std::int64_t>(values.size());
    run(HostQueue{}, Digest{.values = tensor(values.data(), 1, n),
                            .sums = tensor(sums.data(), 1, 2),
                            .tensor = tensor_id});
    return sums;
  };
  EXPECT_NE(digest({1, 2}, 0), digest({2, 1}, 0));
  EXPECT_NE(digest({1, 2}, 0), digest({1, 2}, 1));
  EXPECT_NE(digest({0.0f}, 0), digest({-0.0f}, 0));
}
TEST(Digest, ContinuesItsSums) {
  std::vector<float> values = {1, 2, 3};
  std::vector<std::uint64_t> once(2), twice(2);
  run(HostQueue{},
      Digest{.values = tensor(values.data(), 1, 3), .sums = tensor(once.data(), 1, 2)});
  for (int k = 0; k < 2; ++k) {
    run(HostQueue{},
        Digest{.values = tensor(values.data(), 1, 3), .sums = tensor(twice.data(), 1, 2)});
  }
  EXPECT_EQ(twice[0], 2 * once[0]);
  EXPECT_EQ(twice[1], 2 * once[1]);
}
TEST(Digest, OfPartsAddsUpToThatOfTheWhole) {
  std::vector<float> values = {1, -2, 3, 0.5f, 7};
  std::vector<std::uint64_t> whole(2), parts(2);
  run(HostQueue{},
      Digest{
          .values = tensor(values.data(), 1, 5), .sums = tensor(whole.data(), 1, 2), .tensor = 4});
  for (const auto& [first, count] : {std::pair{2, 3}, {0, 2}}) {
    run(HostQueue{}, Digest{.values = tensor(values.data() + first, 1, count),
                            .sums = tensor(parts.data(), 1, 2),
                            .first = static_cast<std::uint64_t>(first),
                            .tensor = 4});
  }
  EXPECT_EQ(parts, whole);
}

}  // namespace
}  // namespace lockstep
