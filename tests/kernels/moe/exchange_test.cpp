// Rows on their way to the ranks that have their experts, and back: kernels/moe/exchange.h.
#include "kernels/moe/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace lockstep::test {
namespace {

using Ints = std::vector<std::int32_t>;

Tensor<std::int32_t> row(Ints& values) {
  return tensor(values.data(), 1, static_cast<std::int64_t>(values.size()));
}

// The places of one rank of `ranks`, in memory of the test.
struct Places {
  // `rows` has those of every source, [X, E]; `capacity` is 0 if nothing is padded.
  Places(Ints rows, std::int64_t ranks, std::int32_t rank, std::int32_t capacity,
         std::int64_t places, bool by_expert = false)
      : rows(std::move(rows)), rank(rank) {
    const auto experts = std::ssize(this->rows) / ranks;
    const std::int64_t own = experts / ranks;
    std::int32_t next = 0, all = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
      start.push_back(capacity > 0 ? static_cast<std::int32_t>(e) * capacity : next);
      next += this->rows[rank * experts + e];
    }
    for (std::int64_t s = 0; s < ranks; ++s) {
      for (std::int64_t l = 0; l < own; ++l) all += this->rows[s * experts + rank * own + l];
    }
    sent.resize(ranks * places);
    answered.resize(ranks * places);
    back.resize(capacity > 0 ? experts * capacity : std::max(next, 1));
    taken.resize(capacity > 0 ? experts * capacity : std::max(all, 1));
    own_start.resize(own);
    own_rows.resize(own);
    segment_start.resize(experts);
    segment_rows.resize(experts);
    const std::int64_t lists = by_expert ? own : ranks;
    const ExchangeLayout op{.rows_of_ranks = tensor(this->rows.data(), ranks, experts),
                            .start = row(start),
                            .sent = row(sent),
                            .back = row(back),
                            .taken = row(taken),
                            .answered = row(answered),
                            .own_start = row(own_start),
                            .own_rows = row(own_rows),
                            .segment_start = tensor(segment_start.data(), lists, experts / lists),
                            .segment_rows = tensor(segment_rows.data(), lists, experts / lists),
                            .rank = rank,
                            .capacity = capacity,
                            .by_expert = by_expert};
    check(op);
    run(HostQueue{}, op);
  }
  Ints rows, start, sent, back, taken, answered, own_start, own_rows, segment_start, segment_rows;
  std::int32_t rank;
};

std::vector<float> moved(const std::vector<float>& from, Ints& place) {
  std::vector<float> to(place.size());
  const MoveRows<float> op{
      .from = tensor(const_cast<float*>(from.data()), static_cast<std::int64_t>(from.size()), 1),
      .place = row(place),
      .to = tensor(to.data(), static_cast<std::int64_t>(to.size()), 1)};
  check(op);
  run(HostQueue{}, op);
  return to;
}

// What each rank receives if each sends `sent`: part r of a rank goes to rank r.
std::vector<std::vector<float>> exchanged(const std::vector<std::vector<float>>& sent) {
  const std::size_t ranks = sent.size(), part = sent[0].size() / ranks;
  std::vector<std::vector<float>> received(ranks, std::vector<float>(sent[0].size()));
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to)
      std::copy_n(sent[from].begin() + to * part, part, received[to].begin() + from * part);
  }
  return received;
}

// Two ranks with two experts each; the first sends 2, 0 | 1, 3 rows, the second 1, 1 | 0, 2.
TEST(ExchangeLayout, PutsSourcesOfAnExpertOneBehindTheOther) {
  const Places first({2, 0, 1, 3, 1, 1, 0, 2}, 2, 0, 0, 4);
  EXPECT_EQ(first.sent, (Ints{0, 1, -1, -1, 2, 3, 4, 5}));
  EXPECT_EQ(first.back, (Ints{0, 1, 4, 5, 6, 7}));
  EXPECT_EQ(first.taken, (Ints{0, 1, 4, 5}));
  EXPECT_EQ(first.answered, (Ints{0, 1, -1, -1, 2, 3, -1, -1}));
  EXPECT_EQ(first.own_start, (Ints{0, 3}));
  EXPECT_EQ(first.own_rows, (Ints{3, 1}));
  EXPECT_EQ(first.segment_start, (Ints{0, 3, 2, 3}));
  EXPECT_EQ(first.segment_rows, (Ints{2, 0, 1, 1}));
  const Places second({2, 0, 1, 3, 1, 1, 0, 2}, 2, 1, 0, 4);
  EXPECT_EQ(second.taken, (Ints{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(second.segment_start, (Ints{0, 1, 1, 4}));
  EXPECT_EQ(second.own_start, (Ints{0, 1}));
  EXPECT_EQ(second.own_rows, (Ints{1, 5}));
}

TEST(ExchangeLayout, ListsSegmentsAsTheyLie) {
  const Places first({2, 0, 1, 3, 1, 1, 0, 2}, 2, 0, 0, 4, true);
  EXPECT_EQ(first.segment_start, (Ints{0, 2, 3, 3}));
  EXPECT_EQ(first.segment_rows, (Ints{2, 1, 0, 1}));
  const Places padded({2, 0, 1, 2, 1, 1, 0, 2}, 2, 1, 2, 4, true);
  EXPECT_EQ(padded.segment_start, (Ints{0, 2, 4, 6}));
  EXPECT_EQ(padded.segment_rows, (Ints{1, 0, 2, 2}));
}

TEST(ExchangeLayout, GivesEachSourceItsCapacityIfPadded) {
  const Places one({2, 0, 1, 2, 1, 1, 0, 2}, 2, 1, 2, 4);
  EXPECT_EQ(one.taken, (Ints{0, -1, -1, -1, 1, 2, 4, 5}));
  EXPECT_EQ(one.segment_start, (Ints{0, 4, 2, 6}));
  EXPECT_EQ(one.segment_rows, (Ints{1, 2, 0, 2}));
  EXPECT_EQ(one.own_start, (Ints{0, 4}));
  EXPECT_EQ(one.own_rows, (Ints{4, 4}));
  EXPECT_EQ(one.back, (Ints{0, -1, 1, -1, -1, -1, 4, 5}));
}

// Owners see every row in its segment, and what they send back lands where it came from.
RC_GTEST_PROP(ExchangeLayout, BringsEachRowToItsExpertAndBack, ()) {
  const auto ranks = *rc::gen::inRange<std::int64_t>(1, 5),
             own = *rc::gen::inRange<std::int64_t>(1, 4);
  const std::int64_t experts = ranks * own;
  const bool padded = *rc::gen::arbitrary<bool>();
  const auto capacity = *rc::gen::inRange<std::int32_t>(1, 5);
  const auto rows =
      *rc::gen::container<Ints>(static_cast<std::size_t>(ranks * experts),
                                rc::gen::inRange<std::int32_t>(0, padded ? capacity + 1 : 7));
  std::int64_t places = 1;
  for (std::int64_t s = 0; s < ranks; ++s) {
    for (std::int64_t o = 0; o < ranks; ++o) {
      std::int64_t between = 0;
      for (std::int64_t l = 0; l < own; ++l) between += rows[s * experts + o * own + l];
      places = std::max(places, between);
    }
  }
  std::vector<Places> all;
  std::vector<std::vector<float>> buffers, sent;
  for (std::int32_t r = 0; r < ranks; ++r) {
    all.emplace_back(rows, ranks, r, padded ? capacity : 0, places);
    std::vector<float>& buffer = buffers.emplace_back(all.back().back.size());
    for (std::int64_t e = 0; e < experts; ++e) {
      for (std::int32_t k = 0; k < rows[r * experts + e]; ++k)
        buffer[all.back().start[e] + k] = static_cast<float>(1 + k + 100 * e + 10000 * r);
    }
    sent.push_back(moved(buffer, all.back().sent));
  }
  std::vector<std::vector<float>> answers;
  const auto received = exchanged(sent);
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::vector<float> owned = moved(received[r], all[r].taken);
    for (std::int64_t s = 0; s < ranks; ++s) {
      for (std::int64_t l = 0; l < own; ++l) {
        const std::int64_t e = r * own + l;
        RC_ASSERT(all[r].segment_rows[s * own + l] == rows[s * experts + e]);
        for (std::int32_t k = 0; k < rows[s * experts + e]; ++k) {
          RC_ASSERT(owned[all[r].segment_start[s * own + l] + k] ==
                    static_cast<float>(1 + k + 100 * e + 10000 * s));
        }
      }
    }
    answers.push_back(moved(owned, all[r].answered));
  }
  const auto returned = exchanged(answers);
  for (std::int64_t r = 0; r < ranks; ++r) RC_ASSERT(moved(returned[r], all[r].back) == buffers[r]);
}

}  // namespace
}  // namespace lockstep::test
