// The oracle's work is counted exactly, and its rate follows from two times. How fast this machine
// is, no test asks.
#include "harness/judge/oracle_time.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// One MLP of 2 x 3 weights each way, a vocabulary of 5, 4 tokens in one document.
Scenario small() {
  Scenario s;
  s.model.pattern = "-";
  s.model.hidden = 2;
  s.model.mlp.hidden = 3;
  s.model.vocab = 5;
  s.data.pack_length = 4;
  s.data.documents = {{{4}}};
  s.training.steps = 7;
  s.training.microbatches = s.training.in_flight = 1;
  return s;
}

TEST(OracleTime, CountsProductsForwardOnceAndBackwardTwice) {
  // A token meets two matrices of 6, the output's 10, and two gains of 2; 4 tokens, 7 steps.
  EXPECT_EQ(oracle_work(small()).multiply_adds, 3.0 * (6 + 6 + 10 + 2 + 2) * 4 * 7);
}

TEST(OracleTime, CountsStepsMicrobatchesAndRanks) {
  Scenario more = small();
  const OracleWork one = oracle_work(more);
  more.training.microbatches = 3;
  more.parallel.data = 2;
  const OracleWork six = oracle_work(more);
  EXPECT_EQ(six.multiply_adds, 6 * one.multiply_adds);
  // Weights are updated once a step, by whichever number of microbatches.
  const double updates = 7.0 * (6 + 6 + 10 + 10 + 2 + 2);
  EXPECT_EQ(six.elements - updates, 6 * (one.elements - updates));
  more.training.steps = 14;
  EXPECT_EQ(oracle_work(more).elements, 2 * six.elements);
}

TEST(OracleTime, FindsTheRateOfBothParts) {
  const OracleWork a{.multiply_adds = 1000, .elements = 500}, b{32000, 4000};
  const OracleRate truth{.per_multiply_add = 2e-9, .per_element = 3e-8};
  const OracleRate found = rate_of(a, truth.seconds(a), b, truth.seconds(b));
  EXPECT_NEAR(found.per_multiply_add, truth.per_multiply_add, 1e-15);
  EXPECT_NEAR(found.per_element, truth.per_element, 1e-14);
  // A small model that was slowed by others says nothing of products: no time is negative.
  const OracleRate odd = rate_of(a, 1.0, b, 1e-6);
  EXPECT_GE(odd.per_multiply_add, 0);
  EXPECT_GE(odd.per_element, 0);
  EXPECT_GT(odd.seconds(b), 0);
}

TEST(OracleTime, MeasuresATimeForEachPrecision) {
  for (const Numerics numerics : {Numerics::fp32, Numerics::bf16}) {
    Scenario s = small();
    s.model.pattern = "M*-E*";
    const OracleRate rate = measure_oracle(s, numerics);
    EXPECT_GT(rate.seconds(oracle_work(s)), 0);
  }
}

}  // namespace
}  // namespace lockstep
