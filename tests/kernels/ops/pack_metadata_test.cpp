#include "kernels/ops/pack_metadata.h"

#include "kernels/core/packed_documents.h"
#include "tests/kernels/ops/plain.h"

namespace lockstep {
namespace {

using plain::for_cases;
using Integers = std::vector<std::int32_t>;

// The metadata of a pack, built by hand: lengths in, tables out.
struct PackedBatch {
  PackedBatch(Integers lengths_in, std::int32_t count_in, std::int64_t rows, std::int32_t gaps,
              std::int32_t align, std::int32_t chunk, bool extend)
      : lengths(std::move(lengths_in)),
        numbers(lengths.size()),
        count{count_in},
        cu(lengths.size() + 1),
        padded(cu),
        document(static_cast<std::size_t>(rows)),
        position(document),
        number(document),
        chunk_document(lengths.size() + (document.size() + chunk - 1) / chunk),
        chunk_start(chunk_document),
        chunk_rows(chunk_document) {
    for (std::size_t s = 0; s < numbers.size(); ++s)
      numbers[s] = static_cast<std::int32_t>(100 + s);
    const auto row = [](Integers& v) {
      return tensor(v.data(), 1, static_cast<std::int64_t>(v.size()));
    };
    const PackMetadata op{.lengths = row(lengths),
                          .numbers = row(numbers),
                          .count = row(count),
                          .cu_seqlens = row(cu),
                          .cu_seqlens_padded = row(padded),
                          .row_document = row(document),
                          .row_position = row(position),
                          .row_number = row(number),
                          .chunk_document = row(chunk_document),
                          .chunk_start = row(chunk_start),
                          .chunk_rows = row(chunk_rows),
                          .gaps = gaps,
                          .align = align,
                          .chunk = chunk,
                          .extend_last = extend};
    check(op);
    run(HostQueue{}, op);
  }
  Integers lengths, numbers, count, cu, padded, document, position, number, chunk_document,
      chunk_start, chunk_rows;
};

TEST(PackMetadata, PlacesDocumentsGapsAndAlignment) {
  const PackedBatch pack({3, 0, 5, 99}, 3, 16, 1, 4, 4, false);
  EXPECT_EQ(pack.cu, (Integers{0, 3, 3, 8, 8})) << "the entry after count is ignored";
  EXPECT_EQ(pack.padded, (Integers{0, 4, 4, 16, 16}));
  EXPECT_EQ(pack.document, (Integers{0, 0, 0, -1, 2, 2, 2, 2, 2, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(pack.position, (Integers{0, 1, 2, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(pack.number,
            (Integers{100, 100, 100, 0, 102, 102, 102, 102, 102, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(pack.chunk_document, (Integers{0, 2, 2, -1, -1, -1, -1, -1}));
  EXPECT_EQ(pack.chunk_start, (Integers{0, 4, 8, 0, 0, 0, 0, 0}));
  EXPECT_EQ(pack.chunk_rows, (Integers{3, 4, 1, 0, 0, 0, 0, 0}));
}
TEST(PackMetadata, KeepsGapsWithoutAlignment) {
  const PackedBatch pack({2, 0, 1}, 3, 8, 2, 1, 4, false);
  EXPECT_EQ(pack.cu, (Integers{0, 2, 2, 3}));
  EXPECT_EQ(pack.padded, (Integers{0, 4, 4, 8}));
  EXPECT_EQ(pack.document, (Integers{0, 0, -1, -1, 2, -1, -1, -1}));
}
TEST(PackMetadata, ExtendsTheLastSlotThatIsNotEmpty) {
  const PackedBatch plain_pack({3, 2, 0, 0}, 4, 16, 0, 1, 4, false),
      extended({3, 2, 0, 0}, 4, 16, 0, 1, 4, true);
  EXPECT_EQ(extended.cu, (Integers{0, 3, 5, 5, 5}));
  EXPECT_EQ(extended.padded, (Integers{0, 3, 16, 16, 16}));
  EXPECT_EQ(plain_pack.padded, (Integers{0, 3, 5, 5, 16}));
  EXPECT_EQ(extended.document, plain_pack.document) << "no row changes its document";
  EXPECT_EQ(extended.chunk_start, plain_pack.chunk_start);
}
TEST(PackMetadata, AnEmptyPackStaysEmpty) {
  const PackedBatch pack({0, 0}, 2, 5, 3, 8, 2, true);
  EXPECT_EQ(pack.cu, (Integers{0, 0, 0}));
  EXPECT_EQ(pack.padded, (Integers{0, 0, 0}));
  EXPECT_EQ(pack.document, Integers(5, -1));
  EXPECT_EQ(pack.chunk_document, Integers(5, -1));
}
TEST(PackMetadata, FillsAPackExactly) {
  const PackedBatch pack({4, 4}, 2, 8, 0, 4, 3, true);
  EXPECT_EQ(pack.cu, (Integers{0, 4, 8}));
  EXPECT_EQ(pack.padded, (Integers{0, 4, 8}));
  EXPECT_EQ(pack.chunk_rows, (Integers{3, 1, 3, 1, 0}));
}
// The last slot of count is the dummy slot, and slots behind it are empty.
TEST(PackMetadata, TheDummySlotTakesTheRowsBehindTheDocuments) {
  const PackedBatch pack({3, 5, 0, 9, 9}, 3, 12, 0, 1, 4, false);
  EXPECT_EQ(pack.cu, (Integers{0, 3, 8, 8, 8, 8}));
  EXPECT_EQ(pack.padded, (Integers{0, 3, 8, 12, 12, 12}));
  EXPECT_EQ(pack.document, (Integers{0, 0, 0, 1, 1, 1, 1, 1, -1, -1, -1, -1}));
}
// Every row of a document is in exactly one chunk; chunks start at multiples of the chunk length in
// their document.
TEST(PackMetadata, ChunksCoverTheDocuments) {
  for_cases<PackMetadata>(200, [](const auto& op) {
    run(HostQueue{}, op);
    std::vector<int> covered(static_cast<std::size_t>(op.row_document.cols));
    for (std::int64_t c = 0; c < op.chunk_document.cols && op.chunk_document.data[c] >= 0; ++c) {
      const std::int32_t document = op.chunk_document.data[c];
      ASSERT_EQ((op.chunk_start.data[c] - first_row_of(op, document)) % op.chunk, 0);
      ASSERT_TRUE(op.chunk_rows.data[c] >= 1 && op.chunk_rows.data[c] <= op.chunk);
      for (std::int32_t p = 0; p < op.chunk_rows.data[c]; ++p) {
        const std::int32_t row = op.chunk_start.data[c] + p;
        ++covered[static_cast<std::size_t>(row)];
        ASSERT_EQ(op.row_document.data[row], document);
        ASSERT_EQ(op.row_position.data[row], row - first_row_of(op, document));
        ASSERT_EQ(op.row_number.data[row], op.numbers.data[document]);
      }
    }
    for (std::int64_t i = 0; i < op.row_document.cols; ++i) {
      ASSERT_EQ(covered[static_cast<std::size_t>(i)], op.row_document.data[i] >= 0 ? 1 : 0);
    }
  });
}
TEST(PackMetadataDeath, RefusesDocumentsThatDoNotFit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(PackedBatch({5, 6}, 2, 10, 0, 1, 4, false), "the slots fit into the pack");
}

}  // namespace
}  // namespace lockstep
