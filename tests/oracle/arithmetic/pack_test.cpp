// The boundaries of a pack, computed by hand from arithmetic.md 1.
#include "oracle/arithmetic/pack.h"

#include <gtest/gtest.h>

namespace lockstep::oracle {
namespace {

using Numbers = std::vector<std::int64_t>;

// 16 rows.
Boundaries boundaries(const Numbers& lengths, Tail tail, std::int64_t gaps = 0,
                      std::int64_t align = 1) {
  Scenario scenario;
  scenario.data.pack_length = 16;
  scenario.data.gaps = gaps;
  scenario.data.align = align;
  scenario.data.tail = tail;
  Microbatch microbatch;
  for (const std::int64_t length : lengths)
    microbatch.documents.emplace_back().tokens.resize(static_cast<std::size_t>(length));
  return boundaries_of(scenario, microbatch);
}

TEST(Boundaries, ADummySlotTakesTheTail) {
  const Boundaries all = boundaries({3, 0, 5}, Tail::append_dummy_seq, 1, 4);
  EXPECT_EQ(all.cu_seqlens, (Numbers{0, 3, 3, 8, 8}));
  EXPECT_EQ(all.cu_seqlens_padded, (Numbers{0, 4, 4, 12, 16}));
}
TEST(Boundaries, ThereIsNoDummySlotWithoutATail) {
  const Boundaries all = boundaries({3, 11}, Tail::append_dummy_seq, 1, 1);
  EXPECT_EQ(all.cu_seqlens, (Numbers{0, 3, 14}));
  EXPECT_EQ(all.cu_seqlens_padded, (Numbers{0, 4, 16}));
}
TEST(Boundaries, TheLastSlotThatIsNotEmptyTakesTheTail) {
  const Boundaries all = boundaries({0, 2, 5, 0, 0}, Tail::extend_last, 2, 1);
  EXPECT_EQ(all.cu_seqlens, (Numbers{0, 0, 2, 7, 7, 7}));
  EXPECT_EQ(all.cu_seqlens_padded, (Numbers{0, 0, 4, 16, 16, 16}));
}
TEST(Boundaries, EmptyDocumentsTakeNoRows) {
  EXPECT_EQ(boundaries({0, 0}, Tail::extend_last, 3, 8).cu_seqlens_padded, (Numbers{0, 0, 0}));
  EXPECT_EQ(boundaries({0, 0}, Tail::append_dummy_seq, 3, 8).cu_seqlens_padded,
            (Numbers{0, 0, 0, 16}));
  EXPECT_EQ(boundaries({}, Tail::extend_last).cu_seqlens, (Numbers{0}));
  EXPECT_EQ(boundaries({}, Tail::append_dummy_seq).cu_seqlens_padded, (Numbers{0, 16}));
}

}  // namespace
}  // namespace lockstep::oracle
