// Claims about the classes of document lengths, for packs and capacities of any size, and about the
// tables of a pack.
#include "kernels/ops/attention_classes.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

#include "kernels/ops/cudnn_attention.h"

namespace lockstep {
namespace {

struct Shape {
  std::int64_t rows, capacity, max_seqlen;
  std::int64_t bound() const { return std::min(rows, max_seqlen); }
  AttentionClasses classes() const { return {rows, capacity, max_seqlen}; }
};

Shape any_shape() {
  const std::int64_t rows = *rc::gen::oneOf(
      rc::gen::inRange<std::int64_t>(1, 300),
      rc::gen::inRange<std::int64_t>(1, (std::int64_t{1} << 20) + 1),
      rc::gen::map(rc::gen::inRange(0, 21), [](int e) { return std::int64_t{1} << e; }));
  const std::int64_t capacity = *rc::gen::oneOf(rc::gen::inRange<std::int64_t>(1, 9),
                                                rc::gen::inRange<std::int64_t>(1, 2000));
  return {rows, capacity,
          *rc::gen::oneOf(rc::gen::just(AttentionClasses::kNoBound),
                          rc::gen::inRange<std::int64_t>(1, rows + 1))};
}

RC_GTEST_PROP(AttentionClasses, EveryLengthHasOneClassOfABackwardPass, ()) {
  const Shape shape = any_shape();
  const AttentionClasses classes = shape.classes();
  RC_ASSERT(classes.count >= 2);
  RC_ASSERT(classes.list[1].longest == shape.bound());
  RC_ASSERT(classes.list[classes.count - 1].above == 0);
  for (int c = 2; c < classes.count; ++c)
    RC_ASSERT(classes.list[c].longest == classes.list[c - 1].above);
  RC_ASSERT(classes.list[0].above < 0 && classes.list[0].longest == shape.bound());
  RC_ASSERT(classes.list[0].slots == shape.capacity);
}

// The most documents longer than `above` that a pack can hold.
RC_GTEST_PROP(AttentionClasses, EveryPackFits, ()) {
  const Shape shape = any_shape();
  const AttentionClasses classes = shape.classes();
  for (int c = 1; c < classes.count; ++c) {
    const std::int64_t most = std::min(shape.capacity, shape.rows / (classes.list[c].above + 1));
    RC_ASSERT(classes.list[c].slots == most);
  }
}

RC_GTEST_PROP(AttentionClasses, NoneTakesMoreThanTheLongestDocumentAlone, ()) {
  const Shape shape = any_shape();
  const AttentionClasses classes = shape.classes();
  const auto tiles = [](std::int64_t rows) {
    return (rows + AttentionClasses::kTile - 1) / AttentionClasses::kTile;
  };
  for (int c = 1; c < classes.count; ++c) {
    const AttentionClass& one = classes.list[c];
    const std::int64_t squares = one.slots * tiles(one.longest) * tiles(one.longest);
    RC_ASSERT(squares <= std::max(tiles(shape.rows) * tiles(shape.rows),
                                  one.slots));  // One tile each is the least.
  }
}

RC_GTEST_PROP(AttentionClasses, SlotsLieEndToEnd, ()) {
  const Shape shape = any_shape();
  const AttentionClasses classes = shape.classes();
  std::int64_t first = 0;
  for (int c = 0; c < classes.count; ++c) {
    RC_ASSERT(classes.list[c].first == first);
    RC_ASSERT(classes.first_offset(c) == first + c);
    first += classes.list[c].slots;
  }
  RC_ASSERT(classes.slots == first);
  RC_ASSERT(classes.offsets() == first + classes.count);
}

TEST(AttentionClasses, OfAPackOf8192) {
  const AttentionClasses classes(8192, 64);
  ASSERT_EQ(classes.count, 5);
  const std::int64_t longest[] = {8192, 8192, 4096, 1664, 384}, slots[] = {64, 1, 4, 21, 64};
  for (int c = 0; c < classes.count; ++c) {
    EXPECT_EQ(classes.list[c].longest, longest[c]);
    EXPECT_EQ(classes.list[c].slots, slots[c]);
  }
}

struct Tables {
  std::vector<std::int32_t> starts, lengths, cu_seqlens, cu_seqlens_padded, slot_lengths;
  std::vector<std::int64_t> offsets;
};

constexpr std::int32_t kHeads = 6, kKvHeads = 2, kHeadDim = 32;

Tables tables_of(std::int64_t rows, std::vector<std::int32_t> starts,
                 std::vector<std::int32_t> lengths) {
  const auto capacity = static_cast<std::int64_t>(lengths.size());
  const AttentionClasses classes(rows, capacity);
  Tables made{std::move(starts), std::move(lengths), {0}, {}, {}, {}};
  std::partial_sum(made.lengths.begin(), made.lengths.end(), std::back_inserter(made.cu_seqlens));
  made.cu_seqlens_padded = made.starts;
  made.cu_seqlens_padded.push_back(static_cast<std::int32_t>(rows));
  made.slot_lengths.assign(static_cast<std::size_t>(classes.slots), -7);
  made.offsets.assign(static_cast<std::size_t>(3 * classes.offsets()), -7);
  const AttentionTables op{
      .cu_seqlens = tensor(made.cu_seqlens.data(), 1, capacity + 1),
      .cu_seqlens_padded = tensor(made.cu_seqlens_padded.data(), 1, capacity + 1),
      .lengths = tensor(made.slot_lengths.data(), 1, classes.slots),
      .offsets = tensor(made.offsets.data(), 3, classes.offsets()),
      .rows = rows,
      .heads = kHeads,
      .kv_heads = kKvHeads,
      .head_dim = kHeadDim};
  check(op);
  run(HostQueue{}, op);
  return made;
}

// The rows that the slots of some classes show, each with how often.
std::vector<int> shown(const Tables& tables, const AttentionClasses& classes, std::int64_t rows,
                       int from, int end, int which, std::int64_t width) {
  std::vector<int> count(static_cast<std::size_t>(rows));
  for (int c = from; c < end; ++c) {
    const std::int64_t* offset =
        tables.offsets.data() + which * classes.offsets() + classes.first_offset(c);
    for (std::int64_t s = 0; s < classes.list[c].slots; ++s) {
      EXPECT_LE(offset[s], offset[s + 1]);
      EXPECT_EQ(offset[s] % width, 0);
      const std::int32_t length =
          tables.slot_lengths[static_cast<std::size_t>(classes.list[c].first + s)];
      for (std::int64_t i = 0; i < length; ++i)
        ++count.at(static_cast<std::size_t>(offset[s] / width + i));
    }
    EXPECT_EQ(offset[classes.list[c].slots], rows * width);
  }
  return count;
}

// Forward and backward classes show every row of a document once, by each of the three offsets, and
// no other row.
RC_GTEST_PROP(CudnnTables, ShowEveryRowOfADocumentOnce, ()) {
  const std::int64_t rows = *rc::gen::inRange<std::int64_t>(1, 1500);
  const std::int64_t capacity = *rc::gen::inRange<std::int64_t>(1, 30);
  const AttentionClasses classes(rows, capacity);
  std::vector<std::int32_t> starts, lengths;
  std::vector<int> want(static_cast<std::size_t>(rows));
  std::int64_t end = 0;
  for (std::int64_t d = 0; d < capacity; ++d) {
    const int edge = *rc::gen::inRange(0, classes.count);
    const std::int64_t at_edge =
        std::max<std::int64_t>(0, classes.list[edge].longest + *rc::gen::inRange(-1, 2));
    const std::int64_t asked =
        *rc::gen::element<std::int64_t>(0, at_edge, *rc::gen::inRange(1, 200));
    const std::int64_t length = end + asked <= rows ? asked : 0;
    starts.push_back(static_cast<std::int32_t>(end));
    lengths.push_back(static_cast<std::int32_t>(length));
    std::fill_n(want.begin() + end, length, 1);
    end = std::min(rows, end + length + *rc::gen::inRange(0, 4));
  }
  const Tables tables = tables_of(rows, starts, lengths);
  const std::int64_t widths[] = {(kHeads + 2 * kKvHeads) * kHeadDim, kHeads * kHeadDim, kHeads};
  for (int which = 0; which < 3; ++which) {
    RC_ASSERT(shown(tables, classes, rows, 0, 1, which, widths[which]) == want);
    RC_ASSERT(shown(tables, classes, rows, 1, classes.count, which, widths[which]) == want);
  }
}

}  // namespace
}  // namespace lockstep
