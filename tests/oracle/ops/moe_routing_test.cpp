// The decisions of a layer of experts, by hand: choice, weights, capacity, places.
#include <gtest/gtest.h>

#include "oracle/model/expert_bias.h"
#include "oracle/ops/dispatch.h"
#include "tests/oracle/cases.h"

namespace lockstep::oracle {
namespace {

const Mutant kNone;
using Indices = std::vector<std::int64_t>;

Indices chosen(const std::vector<float>& keys, std::int64_t slots) {
  Indices experts(slots);
  choose(keys, slots, experts.data(), false);
  return experts;
}

TEST(choice, takes_the_largest_keys_in_their_order) {
  EXPECT_EQ(chosen({0.1f, 0.4f, 0.2f, 0.3f}, 3), (Indices{1, 3, 2}));
  EXPECT_EQ(chosen({-3, -1, -2}, 2), (Indices{1, 2}));
}

TEST(choice, gives_ties_to_the_lowest_index) {
  EXPECT_EQ(chosen({1, 1, 1, 1}, 2), (Indices{0, 1}));
  EXPECT_EQ(chosen({0.5f, 1, 0.5f, 1, 0.5f}, 4), (Indices{1, 3, 0, 2}));
  EXPECT_EQ(chosen({-0.0f, 0.0f, -0.0f}, 3), (Indices{0, 1, 2}));
}

PackedBatch rows_at(const std::vector<Piece>& documents, std::int64_t rows) {
  PackedBatch pack;
  pack.rows = rows;
  pack.documents = pack.runs = documents;
  return pack;
}

// Sigmoids of 17 and of 40 are both 1 in fp32, and softmax of equal logits is equal.
TEST(routing, has_ties_where_scores_are_equal) {
  Matrix<float> logits(2, 4);
  logits.values = {-1, 17, 40, 0.5f, 3, 2, 3, 3};
  const PackedBatch pack = rows_at({{0, 2, 0}}, 2);
  const Routing<float> sigmoid = route(pack, {Router::sigmoid, 2, nullptr}, logits, kNone);
  EXPECT_EQ(sigmoid.experts.values, (Indices{1, 2, 0, 2}));
  const Routing<float> softmax = route(pack, {Router::softmax, 2, nullptr}, logits, kNone);
  EXPECT_EQ(softmax.experts.values, (Indices{2, 1, 0, 2}));
  EXPECT_EQ(bits(softmax.weights.row(1)[0]), bits(0.5f));
  EXPECT_EQ(softmax.chosen, (Indices{1, 1, 2, 0}));
}

// The bias moves the choice; the weights are made of the scores alone.
TEST(routing, uses_the_bias_for_the_choice_alone) {
  Matrix<float> logits(1, 3);
  logits.values = {2, 1, 0};
  const PackedBatch pack = rows_at({{0, 1, 0}}, 1);
  const float bias[] = {-2, 0, 1};
  const Routing<float> routing = route(pack, {Router::sigmoid, 2, bias}, logits, kNone);
  EXPECT_EQ(routing.experts.values, (Indices{2, 1}));
  const float p2 = sigmoid(0.0f), p1 = sigmoid(1.0f), inverse = div(1.0f, add(p2, p1));
  EXPECT_EQ(bits(routing.weights.values[0]), bits(mul(p2, inverse)));
  EXPECT_EQ(bits(routing.weights.values[1]), bits(mul(p1, inverse)));
}

TEST(routing, of_one_slot_keeps_its_score) {
  Matrix<float> logits(1, 2);
  logits.values = {0.25f, 1};
  const Routing<float> routing =
      route(rows_at({{0, 1, 0}}, 1), {Router::sigmoid, 1, nullptr}, logits, kNone);
  EXPECT_EQ(bits(routing.weights.values[0]), bits(sigmoid(1.0f)));
}

std::int64_t capacity(std::int64_t millionths, std::int64_t top_k, std::int64_t rows,
                      std::int64_t experts) {
  Scenario::Model::Moe moe;
  moe.capacity_factor = Ratio{millionths};
  moe.top_k = top_k;
  moe.experts = experts;
  return *expert_capacity(moe, rows, kNone);
}

TEST(capacity, is_the_share_of_all_rows_rounded_up) {
  EXPECT_EQ(capacity(2'000'000, 2, 64, 4), 64);
  EXPECT_EQ(capacity(1'250'000, 2, 64, 4), 40);
  EXPECT_EQ(capacity(1'000'000, 1, 10, 4), 3);
  EXPECT_EQ(capacity(1'000'000, 1, 9, 4), 3);
  EXPECT_EQ(capacity(1, 1, 64, 4), 1);
  EXPECT_EQ(capacity(100'000, 3, 10, 3),
            2);  // In double 0.1 * 3 is above 0.3, and so the quotient above 1.
}

// Four rows of documents with a row of none between them; experts 0 and 1 in both orders.
TEST(places, go_by_row_then_slot) {
  Routing<float> routing;
  routing.experts = Matrix<std::int64_t>(5, 2);
  routing.experts.values = {1, 0, 0, 1, 0, 0, 2, 1, 0, 1};
  routing.chosen = {3, 4, 1};
  const PackedBatch pack = rows_at({{0, 2, 0}, {3, 2, 1}}, 5);
  const Dispatch padded = dispatch(pack, routing, 2, true, kNone);
  EXPECT_EQ(padded.place.values, (Indices{2, 0, 1, 3, -1, -1, 4, -1, -1, -1}));
  EXPECT_EQ(padded.rows, (Indices{2, 2, 1}));
  EXPECT_EQ(padded.buffer, 6);
  const Dispatch tight = dispatch(pack, routing, 2, false, kNone);
  EXPECT_EQ(tight.place.values, padded.place.values);
  EXPECT_EQ(tight.buffer, 5);
  const Dispatch all = dispatch(pack, routing, std::nullopt, false, kNone);
  EXPECT_EQ(all.place.values, (Indices{3, 0, 1, 4, -1, -1, 7, 5, 2, 6}));
  EXPECT_EQ(all.buffer, 8);
}

TEST(expert_bias, moves_towards_what_was_not_chosen) {
  std::vector<float> bias{0.5f, 0, 0, -1};
  update_expert_bias({3, 1, 2, 2}, bias, kNone);
  EXPECT_TRUE(same_bits(bias, {sub(0.5f, 0.001f), 0.001f, 0, -1}));
}

}  // namespace
}  // namespace lockstep::oracle
