// Whole steps: documents do not see each other, equal inputs give equal bits, ranks fold in their
// order.
#include <gtest/gtest.h>

#include "oracle/arithmetic/primitives.h"
#include "tests/oracle/cases.h"

namespace lockstep::oracle {
namespace {

Scenario hybrid() {
  Scenario scenario;
  scenario.model.pattern = "M-M*-";
  scenario.model.attention.heads = 4;
  scenario.model.attention.kv_heads = 2;
  scenario.model.mamba.groups = 2;
  scenario.model.dropout = Ratio{200'000};
  scenario.model.tied_embedding = true;
  return scenario;
}

StepData two_microbatches(std::uint32_t seed) {
  return step_of({{17, 1, 0, 30}, {5, 16, 33}}, 64, seed);
}

TEST(documents, do_not_see_each_other) {
  Microbatch microbatch = documents_of({17, 1, 0, 30, 9}, 64, 1);
  const auto before = document_losses(hybrid(), microbatch);
  for (std::int32_t& token : microbatch.documents[3].tokens) token = (token + 7) % 64;
  const auto after = document_losses(hybrid(), microbatch);
  for (const int number : {0, 1, 4})
    EXPECT_TRUE(same_bits(before.at(number), after.at(number))) << number;
  EXPECT_FALSE(same_bits(before.at(3), after.at(3)));
}

TEST(documents, keep_their_losses_when_they_move) {
  Microbatch microbatch = documents_of({17, 1, 0, 30, 9}, 64, 1);
  const auto before = document_losses(hybrid(), microbatch);
  std::reverse(microbatch.documents.begin(), microbatch.documents.end());
  Scenario gaps = hybrid();
  gaps.data.gaps = 1;
  EXPECT_EQ(document_losses(hybrid(), microbatch), before);
  EXPECT_EQ(document_losses(gaps, microbatch), before);
}

TEST(rows_of_no_document, are_zero_everywhere) {
  Scenario scenario = hybrid();
  scenario.data.gaps = 2;
  Oracle oracle(scenario, {});
  const StepResult result = oracle.step(0, step_of({{20, 0, 7}}, 64, 3));
  int seen = 0;
  for (const Tensor& tensor : result.microbatches[0].activations) {
    if (tensor.name.starts_with("pack.")) continue;  // Boundaries, which have no rows.
    const bool across = tensor.rows == 1;            // [1, T]
    const std::int64_t width = across ? 1 : tensor.cols;
    for (const std::int64_t row : {20, 21, 29, 30, 63}) {
      for (std::int64_t c = 0; c < width; ++c, ++seen)
        EXPECT_EQ(bits(tensor.values[row * width + c]), 0u) << tensor.name;
    }
  }
  EXPECT_GT(seen, 1000);
}

TEST(a_microbatch_without_documents, is_legal) {
  Oracle oracle(hybrid(), {});
  const StepResult result = oracle.step(0, step_of({{}, {0, 0}}, 64, 3));
  EXPECT_EQ(bits(result.loss), 0u);
  EXPECT_EQ(bits(result.norm), 0u);
}

std::string digest_after(const Scenario& scenario, const std::vector<StepData>& data) {
  Oracle oracle(scenario, {});
  for (std::size_t s = 0; s < data.size(); ++s) oracle.step(static_cast<std::int64_t>(s), data[s]);
  return oracle.weight_digest();
}

TEST(training, gives_equal_bits_for_equal_inputs) {
  const std::vector<StepData> data{two_microbatches(1), two_microbatches(5), two_microbatches(9)};
  EXPECT_EQ(digest_after(hybrid(), data), digest_after(hybrid(), data));
  Scenario other = hybrid();
  other.training.seed = 2;
  EXPECT_NE(digest_after(hybrid(), data), digest_after(other, data));
}

TEST(training, lowers_the_loss_of_what_it_sees) {
  Scenario scenario;
  scenario.training.optimizer.lr = 1e-2;
  Oracle oracle(scenario, {});
  const StepData data = two_microbatches(1);
  const float first = oracle.step(0, data).loss;
  float last = first;
  for (int s = 1; s < 20; ++s) last = oracle.step(s, data).loss;
  EXPECT_LT(last, 0.8f * first);
}

TEST(training, continues_from_a_restored_state) {
  const std::vector<StepData> data{two_microbatches(1), two_microbatches(5), two_microbatches(9)};
  Oracle first(hybrid(), {});
  first.step(0, data[0]);
  first.step(1, data[1]);
  Oracle second(hybrid(), {});
  second.restore(first.parameters(), 2);
  EXPECT_EQ(bits(first.step(2, data[2]).loss), bits(second.step(2, data[2]).loss));
  EXPECT_EQ(first.weight_digest(), second.weight_digest());
}

TEST(evaluation, changes_nothing_and_drops_nothing) {
  Scenario plain = hybrid();
  plain.model.dropout = Ratio{0};
  Oracle oracle(hybrid(), {}), without(plain, {});
  const std::string before = oracle.weight_digest();
  const StepData data = two_microbatches(1);
  const StepResult result = oracle.evaluate(0, data);
  EXPECT_EQ(oracle.weight_digest(), before);
  EXPECT_EQ(bits(result.loss), bits(without.step(0, data).loss));
  EXPECT_NE(bits(result.loss), bits(oracle.step(0, data).loss));
}

// Global microbatch m * R + r: one fold over all of them, whatever the number of ranks.
TEST(ranks, fold_in_the_order_of_their_sharding) {
  const StepData data = step_of({{17, 1, 0, 30}, {5, 16, 33}, {64}, {20, 20}}, 64, 1);
  const auto gradients = [&](Sharding strategy, std::int64_t ranks) {
    Scenario scenario = hybrid();
    scenario.fsdp.strategy = strategy;
    scenario.parallel.data = ranks;
    Oracle oracle(scenario, {});
    const StepResult result = oracle.step(0, data);
    return std::pair{oracle.parameters()[0].gradient, result};
  };
  const auto one = gradients(Sharding::no_shard, 1);
  EXPECT_TRUE(same_bits(gradients(Sharding::optim_grads, 2).first, one.first));
  EXPECT_TRUE(same_bits(gradients(Sharding::optim_grads_params, 4).first, one.first));
  const auto two = gradients(Sharding::optim, 2);
  std::vector<float> want(one.first.size());
  bool differs = false;
  for (std::size_t e = 0; e < want.size(); ++e) {
    const auto g = [&](int m) { return one.second.microbatches[m].gradients[0][e]; };
    want[e] = add(add(add(0.0f, g(0)), g(2)), add(add(0.0f, g(1)), g(3)));
    differs = differs || bits(want[e]) != bits(one.first[e]);
  }
  EXPECT_TRUE(same_bits(two.first, want));
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace lockstep::oracle
