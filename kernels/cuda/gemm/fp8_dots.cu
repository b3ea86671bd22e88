#include "kernels/cuda/gemm/fp8_tile.cuh"
#include "kernels/diagnostics/fp8_dots.h"

namespace lockstep {
namespace {

template <int kColumns>
struct DotsEnding {
  Out<float> d;  // The rows and columns of the tile, and what is behind them.
  int rows, columns;

  __device__ void store(const Fp8Sums<kColumns>& sums) const {
    sums.each_pair([&](int row, int column, float sum, float next) {
      if (row >= rows) return;
      if (column < columns) at(d, row, column) = sum;
      if (column + 1 < columns) at(d, row, column + 1) = next;
    });
  }
};

template <class A, class B, int kTileColumns>
struct DotTiles {
  static constexpr int kColumns = kTileColumns;
  const Fp8Dots<A, B>& op;

  struct Tile {
    std::int64_t m0, n0;
    Fp8Tile<A, B> factors;
  };
  __device__ int down() const { return tiles_of_rows(op.d.rows); }
  __device__ int count() const { return down() * tiles_of_columns(op.d.cols, kColumns); }
  __device__ Tile at(int n) const {
    const std::int64_t m0 = std::int64_t{n % down()} * kFp8TileRows;
    const std::int64_t n0 = std::int64_t{n / down()} * kColumns;
    return {m0,
            n0,
            {{&lockstep::at(op.a, m0, 0), op.a.pitch,
              static_cast<int>(smaller(kFp8TileRows, op.d.rows - m0)), op.a.cols},
             {&lockstep::at(op.b, n0, 0), op.b.pitch,
              static_cast<int>(smaller(kColumns, op.d.cols - n0)), op.a.cols}}};
  }
  __device__ DotsEnding<kColumns> ending(const Tile& tile) const {
    return {{&lockstep::at(op.d, tile.m0, tile.n0), op.d.rows, op.d.cols, op.d.pitch},
            tile.factors.a.rows,
            tile.factors.b.rows};
  }
};

template <class A, class B, int kColumns>
__global__ void __launch_bounds__(kFp8Threads, 1)
    fp8_dots(const __grid_constant__ Fp8Dots<A, B> op) {
  pdl_begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  fp8_tiles(memory, DotTiles<A, B, kColumns>{op});
}

// The sums of `rows` rows of d, from the first one on.
template <int kColumns, class A, class B>
void launch_dots(CudaQueue queue, Fp8Dots<A, B> op, std::int64_t first, std::int64_t rows) {
  if (rows == 0) return;
  op.a = {op.a.data + first * op.a.pitch, rows, op.a.cols, op.a.pitch};
  op.d = {op.d.data + first * op.d.pitch, rows, op.d.cols, op.d.pitch};
  launch_fp8_tiles<kColumns>(
      queue, std::int64_t{tiles_of_rows(rows)} * tiles_of_columns(op.d.cols, kColumns),
      fp8_dots<A, B, kColumns>, op);
}

}  // namespace

// Tiles of each size compute half of the rows: their instructions differ.
template <class A, class B>
void run(CudaQueue queue, const Fp8Dots<A, B>& op) {
  const std::int64_t half = op.d.rows / 2;
  launch_dots<kFp8TileColumns>(queue, op, 0, half);
  launch_dots<kFp8NarrowTileColumns>(queue, op, half, op.d.rows - half);
}
template void run(CudaQueue, const Fp8Dots<e4m3, e4m3>&);
template void run(CudaQueue, const Fp8Dots<e4m3, e5m2>&);
template void run(CudaQueue, const Fp8Dots<e5m2, e4m3>&);
template void run(CudaQueue, const Fp8Dots<e5m2, e5m2>&);

}  // namespace lockstep
