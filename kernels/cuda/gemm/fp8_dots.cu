#include "kernels/cuda/gemm/fp8_tile.cuh"
#include "kernels/diagnostics/fp8_dots.h"

namespace lockstep {
namespace {

struct DotsEnding {
  Out<float> d;  // The rows and columns of the tile, and what is behind them.
  int rows, columns;

  __device__ void store(const Fp8Sums& sums) const {
    sums.each_pair([&](int row, int column, float sum, float next) {
      if (row >= rows) return;
      if (column < columns) at(d, row, column) = sum;
      if (column + 1 < columns) at(d, row, column + 1) = next;
    });
  }
};

template <class A, class B>
struct DotTiles {
  const Fp8Dots<A, B>& op;

  struct Tile {
    std::int64_t m0, n0;
    Fp8Tile<A, B> factors;
  };
  __device__ int down() const { return tiles_of_rows(op.d.rows); }
  __device__ int count() const { return down() * tiles_of_columns(op.d.cols); }
  __device__ Tile at(int n) const {
    const std::int64_t m0 = std::int64_t{n % down()} * kFp8TileRows;
    const std::int64_t n0 = std::int64_t{n / down()} * kFp8TileColumns;
    return {m0,
            n0,
            {{&lockstep::at(op.a, m0, 0), op.a.pitch,
              static_cast<int>(smaller(kFp8TileRows, op.d.rows - m0)), op.a.cols},
             {&lockstep::at(op.b, n0, 0), op.b.pitch,
              static_cast<int>(smaller(kFp8TileColumns, op.d.cols - n0)), op.a.cols}}};
  }
  __device__ DotsEnding ending(const Tile& tile) const {
    return {{&lockstep::at(op.d, tile.m0, tile.n0), op.d.rows, op.d.cols, op.d.pitch},
            tile.factors.a.rows,
            tile.factors.b.rows};
  }
};

template <class A, class B>
__global__ void __launch_bounds__(kFp8Threads, 1)
    fp8_dots(const __grid_constant__ Fp8Dots<A, B> op) {
  pdl_begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  fp8_tiles(memory, DotTiles<A, B>{op});
}

}  // namespace

template <class A, class B>
void run(CudaQueue queue, const Fp8Dots<A, B>& op) {
  launch_fp8_tiles(queue, std::int64_t{tiles_of_rows(op.d.rows)} * tiles_of_columns(op.d.cols),
                   fp8_dots<A, B>, op);
}
template void run(CudaQueue, const Fp8Dots<e4m3, e4m3>&);
template void run(CudaQueue, const Fp8Dots<e4m3, e5m2>&);
template void run(CudaQueue, const Fp8Dots<e5m2, e4m3>&);
template void run(CudaQueue, const Fp8Dots<e5m2, e5m2>&);

}  // namespace lockstep
