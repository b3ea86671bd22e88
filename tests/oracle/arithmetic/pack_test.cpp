// The boundaries of a pack (arithmetic.md 1), worked out by hand.
#include "oracle/arithmetic/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/oracle/cases.h"

namespace lockstep::oracle {
namespace {

using ::testing::ElementsAre;

struct Rows {
  std::int64_t capacity = 0, gaps = 0, align = 1;
};

Scenario scenario_of(Tail tail, const Rows& rows) {
  Scenario scenario;
  scenario.data.tail = tail;
  scenario.data.pack_length = rows.capacity;
  scenario.data.gaps = rows.gaps;
  scenario.data.align = rows.align;
  return scenario;
}

Boundaries bounds(Tail tail, const Rows& rows, const std::vector<std::int64_t>& lengths) {
  return boundaries_of(scenario_of(tail, rows), documents_of(lengths, 8, 1));
}

Boundaries extended(const Rows& rows, const std::vector<std::int64_t>& lengths) {
  return bounds(Tail::extend_last, rows, lengths);
}

Boundaries with_dummy(const Rows& rows, const std::vector<std::int64_t>& lengths) {
  return bounds(Tail::append_dummy_seq, rows, lengths);
}

// Slot rows 5 + 2 -> 8, 2 + 2 -> 4, 7 + 2 -> 12, 1 + 2 -> 4.
TEST(boundaries, count_gaps_and_align_in_rows_but_not_in_tokens) {
  const Boundaries last = extended({40, 2, 4}, {5, 2, 7, 1});
  EXPECT_THAT(last.cu_seqlens, ElementsAre(0, 5, 7, 14, 15));
  EXPECT_THAT(last.cu_seqlens_padded, ElementsAre(0, 8, 12, 24, 40));
  const Boundaries dummy = with_dummy({40, 2, 4}, {5, 2, 7, 1});
  EXPECT_THAT(dummy.cu_seqlens, ElementsAre(0, 5, 7, 14, 15, 15));
  EXPECT_THAT(dummy.cu_seqlens_padded, ElementsAre(0, 8, 12, 24, 28, 40));
}

TEST(boundaries, count_gaps_alone) {
  EXPECT_THAT(with_dummy({20, 3, 1}, {4, 5}).cu_seqlens_padded, ElementsAre(0, 7, 15, 20));
  EXPECT_THAT(extended({20, 3, 1}, {4, 5}).cu_seqlens_padded, ElementsAre(0, 7, 20));
}

// Lengths one below, at and one above a multiple of align.
TEST(boundaries, round_up_to_align_alone) {
  EXPECT_THAT(with_dummy({40, 0, 8}, {7, 8, 9}).cu_seqlens_padded, ElementsAre(0, 8, 16, 32, 40));
  EXPECT_THAT(extended({40, 0, 8}, {7, 8, 9}).cu_seqlens_padded, ElementsAre(0, 8, 16, 40));
}

TEST(boundaries, are_the_same_in_rows_and_tokens_without_padding) {
  const Boundaries packed = with_dummy({9, 0, 1}, {2, 3, 4});
  EXPECT_THAT(packed.cu_seqlens, ElementsAre(0, 2, 5, 9));
  EXPECT_EQ(packed.cu_seqlens_padded, packed.cu_seqlens);
}

// An empty document has a slot, but neither gaps nor align give it rows.
TEST(boundaries, keep_slots_of_empty_documents_at_the_front) {
  const Boundaries last = extended({24, 1, 4}, {0, 0, 3, 4});
  EXPECT_THAT(last.cu_seqlens, ElementsAre(0, 0, 0, 3, 7));
  EXPECT_THAT(last.cu_seqlens_padded, ElementsAre(0, 0, 0, 4, 24));
  const Boundaries dummy = with_dummy({24, 1, 4}, {0, 0, 3, 4});
  EXPECT_THAT(dummy.cu_seqlens, ElementsAre(0, 0, 0, 3, 7, 7));
  EXPECT_THAT(dummy.cu_seqlens_padded, ElementsAre(0, 0, 0, 4, 12, 24));
}

TEST(boundaries, keep_slots_of_empty_documents_in_the_middle) {
  const Boundaries last = extended({24, 1, 4}, {3, 0, 0, 4});
  EXPECT_THAT(last.cu_seqlens, ElementsAre(0, 3, 3, 3, 7));
  EXPECT_THAT(last.cu_seqlens_padded, ElementsAre(0, 4, 4, 4, 24));
  const Boundaries dummy = with_dummy({24, 1, 4}, {3, 0, 0, 4});
  EXPECT_THAT(dummy.cu_seqlens, ElementsAre(0, 3, 3, 3, 7, 7));
  EXPECT_THAT(dummy.cu_seqlens_padded, ElementsAre(0, 4, 4, 4, 12, 24));
}

// The tail extends the last slot that is not empty, so empty slots behind it begin and end at the
// end of the pack. A dummy slot comes behind them instead.
TEST(boundaries, keep_slots_of_empty_documents_at_the_end) {
  const Boundaries last = extended({24, 1, 4}, {3, 4, 0, 0});
  EXPECT_THAT(last.cu_seqlens, ElementsAre(0, 3, 7, 7, 7));
  EXPECT_THAT(last.cu_seqlens_padded, ElementsAre(0, 4, 24, 24, 24));
  const Boundaries dummy = with_dummy({24, 1, 4}, {3, 4, 0, 0});
  EXPECT_THAT(dummy.cu_seqlens, ElementsAre(0, 3, 7, 7, 7, 7));
  EXPECT_THAT(dummy.cu_seqlens_padded, ElementsAre(0, 4, 12, 12, 12, 24));
}

TEST(boundaries, keep_slots_of_empty_documents_around_the_only_other_one) {
  EXPECT_THAT(extended({9, 0, 1}, {0, 5, 0}).cu_seqlens_padded, ElementsAre(0, 0, 9, 9));
  EXPECT_THAT(with_dummy({9, 0, 1}, {0, 5, 0}).cu_seqlens_padded, ElementsAre(0, 0, 5, 5, 9));
}

// No row is left: there is no dummy slot, whether gaps, align or tokens fill the last row.
TEST(boundaries, of_an_exactly_full_pack_have_no_tail) {
  for (const Tail tail : {Tail::extend_last, Tail::append_dummy_seq}) {
    const Boundaries full = bounds(tail, {24, 1, 4}, {7, 0, 9, 2, 0});
    EXPECT_THAT(full.cu_seqlens, ElementsAre(0, 7, 7, 16, 18, 18));
    EXPECT_THAT(full.cu_seqlens_padded, ElementsAre(0, 8, 8, 20, 24, 24));
    EXPECT_THAT(bounds(tail, {8, 0, 1}, {8}).cu_seqlens, ElementsAre(0, 8));
    EXPECT_THAT(bounds(tail, {8, 0, 1}, {8}).cu_seqlens_padded, ElementsAre(0, 8));
  }
}

TEST(boundaries, have_a_dummy_slot_from_one_row_on) {
  const Boundaries dummy = with_dummy({9, 0, 1}, {8});
  EXPECT_THAT(dummy.cu_seqlens, ElementsAre(0, 8, 8));
  EXPECT_THAT(dummy.cu_seqlens_padded, ElementsAre(0, 8, 9));
}

TEST(boundaries, of_no_document_are_0_or_one_dummy_slot) {
  const Boundaries last = extended({16, 1, 4}, {});
  EXPECT_THAT(last.cu_seqlens, ElementsAre(0));
  EXPECT_THAT(last.cu_seqlens_padded, ElementsAre(0));
  const Boundaries dummy = with_dummy({16, 1, 4}, {});
  EXPECT_THAT(dummy.cu_seqlens, ElementsAre(0, 0));
  EXPECT_THAT(dummy.cu_seqlens_padded, ElementsAre(0, 16));
}

TEST(boundaries, of_empty_documents_alone_are_0_up_to_a_dummy_slot) {
  const Boundaries last = extended({16, 1, 4}, {0, 0, 0});
  EXPECT_THAT(last.cu_seqlens, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(last.cu_seqlens_padded, ElementsAre(0, 0, 0, 0));
  const Boundaries dummy = with_dummy({16, 1, 4}, {0, 0, 0});
  EXPECT_THAT(dummy.cu_seqlens, ElementsAre(0, 0, 0, 0, 0));
  EXPECT_THAT(dummy.cu_seqlens_padded, ElementsAre(0, 0, 0, 0, 16));
}

TEST(boundaries, do_not_exist_where_slot_rows_exceed_the_pack) {
  EXPECT_THROW(extended({8, 1, 1}, {8}), std::invalid_argument);
  EXPECT_THROW(with_dummy({8, 0, 4}, {5, 1}), std::invalid_argument);
}

// Document s is the rows from cu_seqlens_padded[s] on, as many as it has tokens.
TEST(boundaries, say_where_the_pack_has_its_documents) {
  const std::vector<std::int64_t> lengths{0, 5, 0, 7, 1, 0};
  for (const Tail tail : {Tail::extend_last, Tail::append_dummy_seq}) {
    const Scenario scenario = scenario_of(tail, {40, 2, 4});
    const Microbatch microbatch = documents_of(lengths, 8, 1);
    const PackedBatch pack = make_pack(scenario, microbatch, Mutant());
    const Boundaries found = boundaries_of(scenario, microbatch);
    ASSERT_EQ(pack.documents.size(), 3u);
    for (const Piece& document : pack.documents) {
      const std::uint32_t s = document.number;
      EXPECT_EQ(found.cu_seqlens_padded[s], document.first);
      EXPECT_EQ(found.cu_seqlens[s + 1] - found.cu_seqlens[s], document.rows);
    }
  }
}

}  // namespace
}  // namespace lockstep::oracle
