// The mixture of experts against plain mathematics in double, and against its own text where order
// decides.
#include <bit>
#include <cmath>
#include <map>

#include "kernels/core/fda16.h"
#include "kernels/moe/dispatch.h"
#include "kernels/moe/expert_product.h"
#include "kernels/moe/expert_state.h"
#include "kernels/moe/router.h"
#include "tests/kernels/any_op/op_builder.h"
#include "tests/kernels/ops/plain.h"

namespace lockstep {
namespace {

using plain::for_cases;
using plain::Matrix;

double score(RouterScore kind, const std::vector<double>& logits, std::size_t e) {
  if (kind == RouterScore::sigmoid) return plain::sigmoid(logits[e]);
  double sum = 0;
  for (const double l : logits) sum += std::exp(l - logits[e]);
  return 1 / sum;
}

// ---- Router -------------------------------------------------------------------------------------
// Scores of 24 bits: two dozen roundings of terms no larger than 1, and the chain of the logits.
TEST(Router, ScoresStayWithinTheirBound) {
  for_cases<RouterForward<float>>(60, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t i = 0; i < op.x.rows; ++i) {
      if (op.row_document.data[i] < 0) continue;
      std::vector<double> logits;
      double size = 0;
      for (std::int64_t e = 0; e < op.wr.rows; ++e) {
        double sum = 0, terms = 0;
        for (std::int64_t k = 0; k < op.x.cols; ++k) {
          sum += double{op.x.row(i)[k]} * op.wr.row(e)[k];
          terms += std::abs(double{op.x.row(i)[k]} * op.wr.row(e)[k]);
        }
        logits.push_back(sum);
        size = std::max(size, terms);
        ASSERT_TRUE(plain::near(op.logits.row(i)[e], sum,
                                static_cast<double>(op.x.cols + 1) * plain::kUnit * terms + 1e-44));
      }
      const double bound =
          (static_cast<double>(op.x.cols + 8) * 2 * size + static_cast<double>(op.wr.rows) + 90) *
          plain::kUnit;
      for (std::size_t e = 0; e < logits.size(); ++e) {
        const double want = score(op.kind, logits, e);
        // expn cuts what is under e^-87.
        ASSERT_TRUE(plain::near(op.scores.row(i)[e], want, bound * want * 2 + 1e-37))
            << i << ", " << e;
      }
      double sum = 0;
      for (const double l : logits) sum += std::exp(l);
      ASSERT_TRUE(
          plain::near(op.lse.data[i], std::log(sum), bound * (2 + std::abs(std::log(sum)))));
    }
  });
}

// The selected experts are those that a stable sort by falling key puts first.
TEST(Router, SelectsAsAStableSort) {
  int ties = 0;
  for_cases<RouterForward<float>>(80, [&](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t i = 0; i < op.x.rows; ++i) {
      if (op.row_document.data[i] < 0) {
        for (std::int64_t s = 0; s < op.experts.cols; ++s) ASSERT_EQ(op.experts.row(i)[s], -1);
        continue;
      }
      std::vector<std::int32_t> order;
      for (std::int32_t e = 0; e < op.wr.rows; ++e) order.push_back(e);
      const auto key = [&](std::int32_t e) {
        return op.bias ? add(op.scores.row(i)[e], op.bias.data[e]) : op.scores.row(i)[e];
      };
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return key(a) > key(b); });
      for (std::int64_t s = 0; s < op.experts.cols; ++s) {
        ASSERT_EQ(op.experts.row(i)[s], order[static_cast<std::size_t>(s)]) << i << ", " << s;
        if (s > 0) ties += key(op.experts.row(i)[s]) == key(op.experts.row(i)[s - 1]);
      }
    }
  });
  EXPECT_GT(ties, 20);
}

TEST(Router, WeightsAreScoresOfTheSelected) {
  for_cases<RouterForward<float>>(60, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t i = 0; i < op.x.rows; ++i) {
      if (op.row_document.data[i] < 0) continue;
      double sum = 0;
      for (std::int64_t s = 0; s < op.experts.cols; ++s)
        sum += op.scores.row(i)[op.experts.row(i)[s]];
      for (std::int64_t s = 0; s < op.experts.cols; ++s) {
        const double p = op.scores.row(i)[op.experts.row(i)[s]];
        const double want = p * op.combine.scaling / (op.combine.renormalise ? sum : 1);
        ASSERT_TRUE(plain::near(op.weights.row(i)[s], want, 24 * plain::kUnit * want + 1e-44));
      }
    }
  });
}

// ---- Losses -------------------------------------------------------------------------------------
TEST(RouterLoss, IsTheMeanOverRowsOfDocuments) {
  for_cases<RouterLoss>(60, [](const auto& op) {
    run(HostQueue{}, op);
    const std::int64_t experts = op.scores.cols;
    double rows = 0, squares = 0;
    std::vector<double> mass(static_cast<std::size_t>(experts));
    for (std::int64_t i = 0; i < op.scores.rows; ++i) {
      if (op.row_document.data[i] < 0) continue;
      rows += 1;
      squares += double{op.lse.data[i]} * op.lse.data[i];
      for (std::int64_t e = 0; e < experts; ++e)
        mass[static_cast<std::size_t>(e)] += op.scores.row(i)[e];
    }
    const double share = op.state.data[0].inverse_microbatches;
    double balance = 0;
    for (std::int64_t e = 0; e < experts && rows > 0; ++e) {
      balance += op.aux * static_cast<double>(experts) * (op.counts.data[e] / (rows * op.top_k)) *
                 (mass[static_cast<std::size_t>(e)] / rows) * share;
    }
    const double z = rows > 0 ? op.z * squares / rows * share : 0;
    const double unit = (rows + static_cast<double>(experts) + 20) * plain::kUnit;
    ASSERT_TRUE(plain::near(op.losses.data[0], balance, unit * balance));
    ASSERT_TRUE(plain::near(op.losses.data[1], z, unit * z));
  });
}

// 0 times an infinite sum would be NaN.
TEST(RouterLoss, IsZeroWhereItIsOff) {
  for_cases<RouterLoss>(20, [](const auto& drawn) {
    auto op = drawn;
    op.aux = op.z = 0;
    std::vector<float> scores(static_cast<std::size_t>(op.scores.rows * op.scores.cols), INFINITY);
    std::vector<float> lse(static_cast<std::size_t>(op.scores.rows), INFINITY);
    op.scores.data = scores.data();
    op.scores.pitch = op.scores.cols;
    op.lse.data = lse.data();
    run(HostQueue{}, op);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(op.losses.data[0]), 0u);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(op.losses.data[1]), 0u);
  });
}

// The loss that RouterBackward differentiates, with the selection held.
double routed_loss(const RouterBackward& op, const Matrix& logits) {
  double loss = 0;
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    if (op.row_document.data[i] < 0) continue;
    std::vector<double> row;
    for (std::int64_t e = 0; e < logits.cols; ++e) row.push_back(logits(i, e));
    double chosen = 0, all = 0;
    for (std::int64_t s = 0; s < op.experts.cols; ++s) {
      chosen += score(op.kind, row, static_cast<std::size_t>(op.experts.row(i)[s]));
    }
    for (std::int64_t s = 0; s < op.experts.cols; ++s) {
      const double p = score(op.kind, row, static_cast<std::size_t>(op.experts.row(i)[s]));
      loss +=
          op.dweights.row(i)[s] * op.combine.scaling * (op.combine.renormalise ? p / chosen : p);
    }
    for (std::size_t e = 0; e < row.size(); ++e) {
      if (op.aux) loss += op.slopes.data[e] * score(op.kind, row, e);
      all += std::exp(row[e]);
    }
    if (op.z) loss += op.slopes.data[logits.cols] * std::log(all) * std::log(all);
  }
  return loss;
}
// The bound is fitted: a few dozen roundings of terms no larger than the gradients of weights and
// losses.
TEST(RouterBackward, IsTheSlope) {
  for_cases<RouterBackward>(40, 35, [](const auto& op) {
    run(HostQueue{}, op);
    Matrix logits(op.logits);
    const Matrix got(op.dlogits);
    // A sum of tiny sigmoids divides by next to nothing.
    for (std::int64_t i = 0; i < logits.rows; ++i) {
      for (std::int64_t e = 0; e < logits.cols; ++e) {
        if (op.row_document.data[i] >= 0 && std::abs(logits(i, e)) > 12) return false;
      }
    }
    const double size = 1 + plain::largest(got);
    const double bound = (static_cast<double>(logits.cols) + 60) * plain::kUnit * 30 * size + 1e-6;
    plain::expect_slopes(
        logits, got, op.row_document.data, [&] { return routed_loss(op, logits); }, bound,
        "dlogits");
    return true;
  });
}
TEST(RouterWeightGradient, IsAChainOverPhysicalRows) {
  for_cases<RouterWeightGradient<bf16>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t e = 0; e < op.dwr.rows; ++e) {
      for (std::int64_t c = 0; c < op.dwr.cols; ++c) {
        float sum = 0.0f;
        for (std::int64_t i = 0; i < op.x.rows; ++i) {
          if (op.row_document.data[i] >= 0)
            sum = fma(op.dlogits.row(i)[e], load(op.x.row(i)[c]), sum);
        }
        ASSERT_EQ(bits(op.dwr.row(e)[c]), bits(add(sum, 0.0f)));
      }
    }
  });
}

// ---- Layout -------------------------------------------------------------------------------------
// A queue for each expert, filled in order of (row, slot) until the capacity is reached.
TEST(ExpertLayout, IsFirstComeFirstServed) {
  int dropped = 0, without = 0;
  for_cases<ExpertLayout>(120, [&](const auto& op) {
    run(HostQueue{}, op);
    std::map<std::int32_t, std::vector<std::int32_t>> queues;
    for (std::int64_t i = 0; i < op.experts.rows; ++i) {
      for (std::int64_t s = 0; s < op.experts.cols; ++s) {
        const std::int32_t e = op.experts.row(i)[s];
        const auto pair = static_cast<std::int32_t>(i * op.experts.cols + s);
        const bool full =
            op.capacity > 0 && static_cast<std::int32_t>(queues[e].size()) >= op.capacity;
        if (e < 0 || full) {
          ASSERT_EQ(op.pair_row.row(i)[s], -1);
          dropped += e >= 0;
          continue;
        }
        ASSERT_EQ(op.pair_row.row(i)[s],
                  op.start.data[e] + static_cast<std::int32_t>(queues[e].size()));
        ASSERT_EQ(op.row_pair.data[op.pair_row.row(i)[s]], pair);
        queues[e].push_back(pair);
      }
    }
    std::int32_t next = 0, kept = 0, held = 0;
    for (std::int32_t e = 0; e < op.counts.cols; ++e) {
      ASSERT_EQ(op.rows.data[e], static_cast<std::int32_t>(queues[e].size()));
      ASSERT_EQ(op.start.data[e], op.padded ? e * op.capacity : next);
      next += op.rows.data[e];
      kept += op.rows.data[e];
      without += op.rows.data[e] == 0;
    }
    for (std::int64_t r = 0; r < op.row_pair.cols; ++r) held += op.row_pair.data[r] >= 0;
    ASSERT_EQ(held, kept);
  });
  EXPECT_GT(dropped, 100);
  EXPECT_GT(without, 20);
}
TEST(ExpertCounts, CountPairsOfDocuments) {
  for_cases<ExpertCounts>(40, [](const auto& op) {
    run(HostQueue{}, op);
    std::int64_t all = 0, rows = 0;
    for (std::int64_t e = 0; e < op.counts.cols; ++e) all += op.counts.data[e];
    for (std::int64_t i = 0; i < op.experts.rows; ++i) rows += op.experts.row(i)[0] >= 0;
    ASSERT_EQ(all, rows * op.experts.cols);
  });
}

// ---- There and back -----------------------------------------------------------------------------
// Ones that go to the experts and come back with weight 1 count the pairs that were kept;
// everything is exact.
TEST(Dispatch, BringsEveryKeptPairThereAndBack) {
  for_cases<ExpertLayout>(60, [](const auto& op) {
    run(HostQueue{}, op);
    const std::int64_t tokens = op.experts.rows, slots = op.experts.cols, d = 3;
    std::vector<float> x(static_cast<std::size_t>(tokens * d)),
        buffer(static_cast<std::size_t>(op.row_pair.cols * d));
    std::vector<float> weights(static_cast<std::size_t>(tokens * slots), 1.0f), out(x);
    std::vector<std::int32_t> documents;
    for (std::int64_t i = 0; i < tokens; ++i) {
      documents.push_back(op.experts.row(i)[0] >= 0 ? 0 : -1);
      for (std::int64_t e = 0; e < d; ++e)
        x[static_cast<std::size_t>(i * d + e)] = static_cast<float>(i + 1);
    }
    run(HostQueue{}, Dispatch<float>{.x = tensor(x.data(), tokens, d),
                                     .row_pair = op.row_pair,
                                     .buffer = tensor(buffer.data(), op.row_pair.cols, d),
                                     .top_k = static_cast<std::int32_t>(slots)});
    run(HostQueue{}, Combine<float>{.y = tensor(buffer.data(), op.row_pair.cols, d),
                                    .weights = tensor(weights.data(), tokens, slots),
                                    .pair_row = op.pair_row,
                                    .shared = {},
                                    .row_document = tensor(documents.data(), 1, tokens),
                                    .out = tensor(out.data(), tokens, d)});
    for (std::int64_t i = 0; i < tokens; ++i) {
      std::int64_t kept = 0;
      for (std::int64_t s = 0; s < slots; ++s) kept += op.pair_row.row(i)[s] >= 0;
      for (std::int64_t e = 0; e < d; ++e)
        ASSERT_EQ(out[static_cast<std::size_t>(i * d + e)], static_cast<float>(kept * (i + 1)));
    }
  });
}
// Order decides here, so the text is written out again: slots ascending, then the shared expert,
// one store.
template <class T>
void expect_combined() {
  for_cases<Combine<T>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t i = 0; i < op.out.rows; ++i) {
      for (std::int64_t e = 0; e < op.out.cols; ++e) {
        float c = 0.0f;
        for (std::int64_t s = 0; s < op.weights.cols && op.row_document.data[i] >= 0; ++s) {
          const std::int32_t r = op.pair_row.row(i)[s];
          if (r >= 0) c = fma(op.weights.row(i)[s], load(op.y.row(r)[e]), c);
        }
        c = add(c, 0.0f);
        if (op.shared && op.row_document.data[i] >= 0) c = add(c, load(op.shared.row(i)[e]));
        ASSERT_EQ(bits(load(op.out.row(i)[e])), bits(load(st<T>(c)))) << i << ", " << e;
      }
    }
  });
}
TEST(Combine, AddsSlotsThenTheSharedExpert) {
  expect_combined<float>();
  expect_combined<bf16>();
}
// Combine is linear in y and in the weights: both gradients are its slopes.
TEST(CombineBackward, IsTheSlope) {
  for_cases<CombineBackward<float>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t i = 0; i < op.dout.rows; ++i) {
      for (std::int64_t s = 0; s < op.weights.cols; ++s) {
        const std::int32_t r = op.pair_row.row(i)[s];
        double slope = 0, size = 0;
        for (std::int64_t e = 0; r >= 0 && e < op.dout.cols; ++e) {
          slope += double{op.dout.row(i)[e]} * op.y.row(r)[e];
          size += std::abs(double{op.dout.row(i)[e]} * op.y.row(r)[e]);
          ASSERT_EQ(bits(op.dy.row(r)[e]), bits(mul(op.weights.row(i)[s], op.dout.row(i)[e])));
        }
        ASSERT_TRUE(
            plain::near(op.dweights.row(i)[s], slope,
                        (static_cast<double>(op.dout.cols) + 9) * plain::kUnit * size + 1e-42));
        if (r < 0) {
          ASSERT_EQ(bits(op.dweights.row(i)[s]), 0u);
        }
      }
    }
    for (std::int64_t r = 0; r < op.dy.rows; ++r) {
      for (std::int64_t e = 0; op.row_pair.data[r] < 0 && e < op.dy.cols; ++e)
        ASSERT_EQ(bits(op.dy.row(r)[e]), 0u);
    }
  });
}
template <class T>
void expect_dispatch_backward() {
  for_cases<DispatchBackward<T>>(40, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t i = 0; i < op.dx.rows; ++i) {
      for (std::int64_t k = 0; k < op.dx.cols; ++k) {
        float c = 0.0f, router = 0.0f;
        if (op.row_document.data[i] >= 0) {
          for (std::int64_t s = 0; s < op.pair_row.cols; ++s) {
            if (op.pair_row.row(i)[s] >= 0)
              c = add(c, load(op.dbuffer.row(op.pair_row.row(i)[s])[k]));
          }
          if (op.dshared) c = add(c, load(op.dshared.row(i)[k]));
          for (std::int64_t e = 0; e < op.wr.rows; ++e)
            router = fma(op.dlogits.row(i)[e], op.wr.row(e)[k], router);
          c = add(c, add(router, 0.0f));
        }
        ASSERT_EQ(bits(load(op.dx.row(i)[k])), bits(load(st<T>(add(c, 0.0f))))) << i << ", " << k;
      }
    }
  });
}
TEST(DispatchBackward, AddsSlotsThenTheSharedExpertThenTheRouter) {
  expect_dispatch_backward<float>();
  expect_dispatch_backward<bf16>();
}

// ---- Products -----------------------------------------------------------------------------------
template <class T, class A, class B>
float dot(std::int64_t k, const A& a, const B& b) {
  std::vector<float> x, w;
  for (std::int64_t e = 0; e < k; ++e) x.push_back(load(a(e))), w.push_back(load(b(e)));
  if (std::is_same_v<T, bf16>) return fda_chain(kSm90, 0, k, x.data(), 1, w.data(), 1, 0.0f);
  float c = 0.0f;
  for (std::size_t e = 0; e < x.size(); ++e) c = fma(x[e], w[e], c);
  return add(c, 0.0f);
}
// The expert that owns a buffer row, -1 for padding.
template <class Op>
std::int64_t owner(const Op& op, std::int64_t r) {
  for (std::int64_t e = 0; e < op.start.cols; ++e) {
    if (r >= op.start.data[e] && r < op.start.data[e] + op.rows.data[e]) return e;
  }
  return -1;
}
template <class T>
void expect_products() {
  for_cases<ExpertForward<T>>(25, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t r = 0; r < op.y.rows; ++r) {
      const std::int64_t e = owner(op, r);
      for (std::int64_t o = 0; o < op.y.cols; ++o) {
        const float want = e < 0 ? 0.0f
                                 : dot<T>(
                                       op.x.cols, [&](auto k) { return op.x.row(r)[k]; },
                                       [&](auto k) { return op.w.row(e * op.y.cols + o)[k]; });
        ASSERT_EQ(bits(load(op.y.row(r)[o])), bits(load(st<T>(want)))) << r << ", " << o;
      }
    }
  });
  for_cases<ExpertInputGradient<T>>(25, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t r = 0; r < op.dx.rows; ++r) {
      const std::int64_t e = owner(op, r);
      for (std::int64_t k = 0; k < op.dx.cols; ++k) {
        const float want = e < 0 ? 0.0f
                                 : dot<T>(
                                       op.dy.cols, [&](auto o) { return op.dy.row(r)[o]; },
                                       [&](auto o) { return op.w.row(e * op.dy.cols + o)[k]; });
        ASSERT_EQ(bits(load(op.dx.row(r)[k])), bits(load(st<T>(want)))) << r << ", " << k;
      }
    }
  });
  for_cases<ExpertWeightGradient<T>>(25, [](const auto& op) {
    run(HostQueue{}, op);
    for (std::int64_t row = 0; row < op.dw.rows; ++row) {
      const std::int64_t e = row / op.dy.cols, o = row % op.dy.cols, first = op.start.data[e];
      for (std::int64_t k = 0; k < op.dw.cols; ++k) {
        const float want = dot<T>(
            op.rows.data[e], [&](auto r) { return op.dy.row(first + r)[o]; },
            [&](auto r) { return op.x.row(first + r)[k]; });
        ASSERT_EQ(bits(op.dw.row(row)[k]), bits(want)) << row << ", " << k;
      }
    }
  });
}
TEST(ExpertProducts, AreChainsOfTheExpertsOwn) { expect_products<float>(); }
TEST(ExpertProductsBf16, AreChainsOfTheExpertsOwn) { expect_products<bf16>(); }

// ---- State --------------------------------------------------------------------------------------
TEST(ExpertBias, MovesTowardsTheMean) {
  std::int32_t step[] = {4, 0, 2, 2};
  float bias[] = {0.5f, 0.0f, 0.0f, -1.0f};
  run(HostQueue{},
      UpdateExpertBias{.step = tensor(step, 1, 4), .bias = tensor(bias, 1, 4), .rate = 0.25f});
  EXPECT_EQ(bias[0], 0.25f);
  EXPECT_EQ(bias[1], 0.25f);
  EXPECT_EQ(bias[2], 0.0f);
  EXPECT_EQ(bias[3], -1.0f);
  for (const std::int32_t n : step) EXPECT_EQ(n, 0);
}
TEST(ExpertBias, AddsTheCountsOfAllRanks) {
  std::int32_t step[] = {4, 0, 2, 0, 4, 2};  // For two ranks; together 4, 4, 4.
  float bias[] = {0.5f, 0.0f, -1.0f};
  run(HostQueue{},
      UpdateExpertBias{.step = tensor(step, 2, 3), .bias = tensor(bias, 1, 3), .rate = 0.25f});
  EXPECT_EQ(bias[0], 0.5f);
  EXPECT_EQ(bias[1], 0.0f);
  EXPECT_EQ(bias[2], -1.0f);
  for (const std::int32_t n : step) EXPECT_EQ(n, 0);
}
TEST(CountPairs, AddsToStepAndRun) {
  std::int32_t counts[] = {5, 0}, rows[] = {3, 0}, step[] = {1, 2};
  std::int64_t total[] = {10, 20}, kept[] = {7, 20};
  run(HostQueue{}, CountPairs{.counts = tensor(counts, 1, 2),
                              .rows = tensor(rows, 1, 2),
                              .step = tensor(step, 1, 2),
                              .total = tensor(total, 1, 2),
                              .kept = tensor(kept, 1, 2)});
  EXPECT_EQ(step[0], 6);
  EXPECT_EQ(step[1], 2);
  EXPECT_EQ(total[0], 15);
  EXPECT_EQ(kept[0], 10);
  EXPECT_EQ(kept[1], 20);
}

}  // namespace
}  // namespace lockstep
