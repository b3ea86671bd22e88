// Which tiles our own kernel has for the gradients of H1's weights, and for others.
#include "kernels/cuda/gemm/fp8_tile_columns.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr std::int64_t kBlocks = 132;  // An H100 and an H200 have so many.

int columns_for(std::int64_t rows, std::int64_t columns, std::int64_t products = 1) {
  return fp8_tile_columns(products, rows, columns, kBlocks);
}

TEST(Fp8TileColumns, AreFewerWhereTheLastTurnOfWideTilesWouldBeNearlyEmpty) {
  EXPECT_EQ(columns_for(3072, 2048), kFp8NarrowTileColumns);  // 192 tiles, or 264.
}
TEST(Fp8TileColumns, AreManyWhereWideTilesFillTheirTurns) {
  EXPECT_EQ(columns_for(2048, 2048), kFp8TileColumns);   // 128 tiles, or 176.
  EXPECT_EQ(columns_for(2048, 4096), kFp8TileColumns);   // 256, or 352.
  EXPECT_EQ(columns_for(8192, 2048), kFp8TileColumns);   // 512, or 704.
  EXPECT_EQ(columns_for(2048, 8192), kFp8TileColumns);   // 512, or 688.
  EXPECT_EQ(columns_for(10304, 2048), kFp8TileColumns);  // 648, or 891.
}
TEST(Fp8TileColumns, AreFewerWhereOneTurnIsEnoughForEither) {
  EXPECT_EQ(columns_for(1, 1), kFp8NarrowTileColumns);
  EXPECT_EQ(columns_for(512, 768), kFp8NarrowTileColumns);
}
TEST(Fp8TileColumns, CountTheTilesOfAllExperts) {
  EXPECT_EQ(columns_for(2048, 256, 8), kFp8TileColumns);         // 128 tiles, or 256.
  EXPECT_EQ(columns_for(1024, 2048, 3), kFp8NarrowTileColumns);  // 192, or 264.
}

}  // namespace
}  // namespace lockstep
