// The size of the tiles in which our own kernel multiplies fp8 codes. CUDA headers stay out.
#pragma once

#include <cstdint>

#include "kernels/core/contract.h"

namespace lockstep {

inline constexpr int kFp8TileRows = 128, kFp8TileColumns = 256, kFp8NarrowTileColumns = 192;

LOCKSTEP_HD constexpr int tiles_of_rows(std::int64_t rows) {
  return static_cast<int>((rows + kFp8TileRows - 1) / kFp8TileRows);
}
LOCKSTEP_HD constexpr int tiles_of_columns(std::int64_t columns, int of_tile = kFp8TileColumns) {
  return static_cast<int>((columns + of_tile - 1) / of_tile);
}

// The columns of a tile for so many products of `rows` x `columns` sums, whose tiles `blocks`
// blocks take in turns. In the last turn blocks may have none: 192 tiles keep 132 blocks for two
// turns, as 264 do. A turn of narrow tiles was measured to last 0.80 of one of wide tiles, as if
// each tile had 64 columns more. No bit depends on the choice.
constexpr int fp8_tile_columns(std::int64_t products, std::int64_t rows, std::int64_t columns,
                               std::int64_t blocks) {
  const auto cost = [&](int of_tile) {
    const std::int64_t tiles = products * tiles_of_rows(rows) * tiles_of_columns(columns, of_tile);
    return (tiles + blocks - 1) / blocks * (of_tile + 64);
  };
  return cost(kFp8NarrowTileColumns) < cost(kFp8TileColumns) ? kFp8NarrowTileColumns
                                                             : kFp8TileColumns;
}

}  // namespace lockstep
