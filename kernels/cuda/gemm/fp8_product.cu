#include "kernels/core/require.h"
#include "kernels/core/row_segments.h"
#include "kernels/cuda/common/vec8.cuh"
#include "kernels/cuda/gemm/fp8_tile.cuh"
#include "kernels/cuda/gemm/linear_plan.h"
#include "kernels/ops/fp8.h"

namespace lockstep {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

// Tiles of 128 rows of one segment, when every segment has as many as its rows need. Called by
// whole warps, of which each lane looks at every 32nd segment.
struct RowTile {
  int segment;
  int rows;
  std::int64_t first;
};
__device__ int row_tiles(const RowSegments& segments) {
  int own = 0;
  for (int s = lane_index(); s < segments.count; s += kWarp) own += tiles_of_rows(segments.size(s));
  return static_cast<int>(__reduce_add_sync(kAllLanes, static_cast<unsigned>(own)));
}
// The nth of them; n is less than their number.
__device__ RowTile row_tile(const RowSegments& segments, int n) {
  int segment = 0;
  for (;; segment += kWarp) {
    const int own = segment + lane_index();
    const int tiles = own < segments.count ? tiles_of_rows(segments.size(own)) : 0;
    int end = tiles;  // Behind the lane's segment.
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const int before = __shfl_up_sync(kAllLanes, end, distance);
      if (lane_index() >= distance) end += before;
    }
    const unsigned behind = __ballot_sync(kAllLanes, n < end);
    if (behind != 0) {
      const int lane = __ffs(static_cast<int>(behind)) - 1;
      segment += lane;
      n -= __shfl_sync(kAllLanes, end - tiles, lane);
      break;
    }
    n -= __shfl_sync(kAllLanes, end, kWarp - 1);
  }
  const int done = n * kFp8TileRows;
  return {segment, static_cast<int>(smaller(kFp8TileRows, segments.size(segment) - done)),
          segments.first(segment) + done};
}

// c[r, j] = st(mul(DOT8(a_r, b_j), scale)) for the rows of every segment; rows not in use +0.
template <class A, class B>
struct RowProduct {
  In<A> a;  // [R, K]
  In<B> b;  // [E * n, K]
  In<float> a_scale, b_scale;
  In<std::int32_t> row_document;
  RowSegments segments;
  Out<bf16> c;  // [R, n]
};

// Turns the pairs p of four fragments of eight columns, that lane p of four has, into the whole
// fragment p.
__device__ __forceinline__ Vec8 whole_fragment(const std::uint32_t (&pairs)[4]) {
  const bool odd = lane_place() % 2 != 0, high = lane_place() / 2 != 0;
  const std::uint32_t first = __shfl_xor_sync(kAllLanes, odd ? pairs[0] : pairs[1], 1);
  const std::uint32_t second = __shfl_xor_sync(kAllLanes, odd ? pairs[2] : pairs[3], 1);
  // The pairs of this lane and its neighbour: of fragment 0 or 1, then of 2 or 3.
  const std::uint32_t low_pairs[2] = {odd ? first : pairs[0], odd ? pairs[1] : first};
  const std::uint32_t high_pairs[2] = {odd ? second : pairs[2], odd ? pairs[3] : second};
  const std::uint32_t third = __shfl_xor_sync(kAllLanes, high ? low_pairs[0] : high_pairs[0], 2);
  const std::uint32_t fourth = __shfl_xor_sync(kAllLanes, high ? low_pairs[1] : high_pairs[1], 2);
  return high ? Vec8{{third, fourth, high_pairs[0], high_pairs[1]}}
              : Vec8{{low_pairs[0], low_pairs[1], third, fourth}};
}

// How the sums of a tile of RowProduct are stored.
struct RowProductEnding {
  using Sums = Fp8Sums<kFp8TileColumns>;
  Out<bf16> c;  // The rows and columns of the tile, and what is behind them.
  int rows, columns;
  bool wide;     // Whether eight neighbours can be stored at once.
  bool used[2];  // Of the thread's rows.
  float scale;

  __device__ __forceinline__ void store(const Sums& sums) const {
    if (wide && rows == kFp8TileRows && columns == kFp8TileColumns) {
      store_all<true>(sums);
    } else {
      store_all<false>(sums);
    }
  }

 private:
  template <bool kWhole>
  __device__ __forceinline__ void store_all(const Sums& sums) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = Sums::own_row() + 8 * r;
      bf16* const to = c.data + row * c.pitch + 8 * lane_place();
#pragma unroll
      for (int h = 0; h < Sums::kParts; ++h) {
#pragma unroll
        for (int x = 0; x < Sums::kFragments; x += 4) {
          std::uint32_t pairs[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float(&sum)[4] = sums.total[h][x + i];
            pairs[i] =
                used[r] ? stored_pair(mul(sum[2 * r], scale), mul(sum[2 * r + 1], scale)) : 0;
          }
          const Vec8 eight = whole_fragment(pairs);
          const int column = Sums::kPart * h + 8 * x;
          if constexpr (kWhole) {
            store_16(to + column, eight.pairs[0], eight.pairs[1], eight.pairs[2], eight.pairs[3]);
          } else if (row < rows) {
            store_some(to + column, columns - column - 8 * lane_place(), eight);
          }
        }
      }
    }
  }
  __device__ __forceinline__ static void store_some(bf16* to, int count, const Vec8& eight) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e < count) to[e] = {static_cast<std::uint16_t>(eight.pairs[e / 2] >> 16 * (e % 2))};
    }
  }
};

template <class A, class B>
struct RowProductTiles {
  static constexpr int kColumns = kFp8TileColumns;
  const RowProduct<A, B>& op;
  int down;  // Tiles of rows: those of one column of tiles follow each other.
  bool wide;

  struct Tile {
    RowTile rows;
    int expert;
    std::int64_t n0;
    Fp8Tile<A, B> factors;
  };
  __device__ int count() const { return down * tiles_of_columns(op.c.cols); }
  __device__ Tile at(int n) const {
    const RowTile rows = row_tile(op.segments, n % down);
    const int of_expert = static_cast<int>(op.segments.count) / static_cast<int>(op.b_scale.cols);
    const int expert = rows.segment / of_expert;
    const std::int64_t n0 = std::int64_t{n / down} * kFp8TileColumns;
    return {rows,
            expert,
            n0,
            {{&lockstep::at(op.a, rows.first, 0), op.a.pitch, rows.rows, op.a.cols},
             {&lockstep::at(op.b, expert * op.c.cols + n0, 0), op.b.pitch,
              static_cast<int>(smaller(kFp8TileColumns, op.c.cols - n0)), op.a.cols}}};
  }
  __device__ RowProductEnding ending(const Tile& tile) const {
    const auto used = [&](int row) {
      return row < tile.rows.rows && (op.row_document.data == nullptr ||
                                      lockstep::at(op.row_document, 0, tile.rows.first + row) >= 0);
    };
    const int own = RowProductEnding::Sums::own_row();
    return {{&lockstep::at(op.c, tile.rows.first, tile.n0), op.c.rows, op.c.cols, op.c.pitch},
            tile.rows.rows,
            tile.factors.b.rows,
            wide,
            {used(own), used(own + 8)},
            mul(lockstep::at(op.a_scale, 0, tile.rows.segment),
                lockstep::at(op.b_scale, 0, tile.expert))};
  }
};

template <class A, class B>
__global__ void __launch_bounds__(kFp8Threads, 1)
    product_of_rows(const __grid_constant__ RowProduct<A, B> op, bool wide) {
  pdl_begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  fp8_tiles(memory, RowProductTiles<A, B>{op, row_tiles(op.segments), wide});
}

// Rows of no segment. One warp per row.
__global__ void clear_rows_of_no_segment(RowSegments segments, Out<bf16> c) {
  pdl_begin();
  const std::int64_t row = warp_item();
  if (row >= c.rows || segments.of_row(row) >= 0) return;
  for (std::int64_t k = lane_index(); k < c.cols; k += kWarp) at(c, row, k) = st<bf16>(0.0f);
}

template <class A, class B>
void launch_row_product(CudaQueue queue, const RowProduct<A, B>& op) {
  std::int64_t down = tiles_of_rows(op.a.rows);
  if (op.segments.listed()) {
    down += op.segments.count;
    launch(queue, dim3(blocks_for(op.c.rows, kWarps)), dim3(kThreads), kPdl,
           clear_rows_of_no_segment, op.segments, op.c);
  }
  launch_fp8_tiles<kFp8TileColumns>(queue, down * tiles_of_columns(op.c.cols),
                                    product_of_rows<A, B>, op, is_vectorizable(op.c));
}

__global__ void clear_rows_not_in_use(In<std::int32_t> row_document, Out<bf16> c) {
  pdl_begin();
  const std::int64_t row = warp_item();
  if (row >= c.rows || at(row_document, 0, row) >= 0) return;
  for (std::int64_t k = lane_index(); k < c.cols; k += kWarp) at(c, row, k) = st<bf16>(0.0f);
}
// Behind a product of the library. The codes of such rows are zeros, but a weight may hold a NaN.
void launch_clear_rows_not_in_use(CudaQueue queue, const In<std::int32_t>& row_document,
                                  const Out<bf16>& c) {
  if (!row_document) return;
  launch(queue, dim3(blocks_for(c.rows, kWarps)), dim3(kThreads), kPdl, clear_rows_not_in_use,
         row_document, c);
}

// How the sums of a tile of Fp8LinearWeightGradient are stored: written or added.
template <int kColumns>
struct WeightGradientEnding {
  using Sums = Fp8Sums<kColumns>;
  float* to;
  std::int64_t pitch;
  int rows, columns;
  bool wide;  // Whether all columns are in pairs that can be read and stored at once.
  bool adds;
  float scale;

  __device__ __forceinline__ void store(const Sums& sums) const {
    if (!wide) {
      sums.each_pair([&](int row, int column, float sum, float next) {
        store_one(row, column, sum);
        store_one(row, column + 1, next);
      });
    } else if (adds) {
      store_pairs<true>(sums);
    } else {
      store_pairs<false>(sums);
    }
  }

 private:
  __device__ __forceinline__ void store_one(int row, int column, float sum) const {
    if (row >= rows || column >= columns) return;
    float& g = to[row * pitch + column];
    const float value = mul(sum, scale);
    g = adds ? add(g, value) : value;
  }
  // Everything that a thread adds to in one half of a row is read before any of it is stored, so
  // that it waits for memory once.
  template <bool kAdds>
  __device__ __forceinline__ void store_pairs(const Sums& sums) const {
    constexpr int kHalf = kColumns / 2, kPairs = kHalf / 8;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = Sums::own_row() + 8 * r;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int column = kHalf * h + 2 * lane_place();
        const int some = row < rows ? columns - column : 0;
        float* const own = to + row * pitch + column;
        float2 g[kPairs];
        if constexpr (kAdds) {
#pragma unroll
          for (int x = 0; x < kPairs; ++x) {
            if (8 * x < some) g[x] = *reinterpret_cast<const float2*>(own + 8 * x);
          }
        }
#pragma unroll
        for (int x = 0; x < kPairs; ++x) {
          const float(&sum)[4] = sums.fragment(kPairs * h + x);
          const float low = mul(sum[2 * r], scale), high = mul(sum[2 * r + 1], scale);
          if (8 * x < some)
            store_8(own + 8 * x, bits(kAdds ? add(g[x].x, low) : low),
                    bits(kAdds ? add(g[x].y, high) : high));
        }
      }
    }
  }
};

// Asks for `bytes` of memory in the L2 cache; both are multiples of 16.
__device__ __forceinline__ void prefetch_row(const void* from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

template <int kTileColumns>
struct WeightGradientTiles {
  static constexpr int kColumns = kTileColumns;
  const Fp8LinearWeightGradient& op;
  bool wide;

  struct Tile {
    int result, segment;
    std::int64_t o0, k0;
    Fp8Tile<e5m2, e4m3> factors;
  };
  __device__ int down() const { return tiles_of_rows(op.dy.rows); }
  __device__ int of_segment() const { return down() * tiles_of_columns(op.x.rows, kColumns); }
  __device__ int count() const {
    return of_segment() * (static_cast<int>(op.x_scale.cols) / op.sources);
  }
  // The places of a segment in transposed codes begin at a multiple of 16, and end in code 00.
  __device__ Tile at(int n) const {
    const int result = n / of_segment(), own = n % of_segment();
    const int segment = result * op.sources + op.source;
    const std::int64_t o0 = std::int64_t{own % down()} * kFp8TileRows;
    const std::int64_t k0 = std::int64_t{own / down()} * kColumns;
    const RowSegments segments = segments_of(op, op.x.cols, op.x_scale.cols);
    const std::int64_t place = segments.listed() ? segments.place(segment) : 0;
    const std::int64_t depth = fp8_padded(segments.size(segment));
    return {result,
            segment,
            o0,
            k0,
            {{&lockstep::at(op.dy, o0, place), op.dy.pitch,
              static_cast<int>(smaller(kFp8TileRows, op.dy.rows - o0)), depth},
             {&lockstep::at(op.x, k0, place), op.x.pitch,
              static_cast<int>(smaller(kColumns, op.x.rows - k0)), depth}}};
  }
  __device__ bool adds() const { return op.dw.data == nullptr; }
  __device__ std::int64_t first_row(const Tile& tile) const {
    return tile.result * op.dy.rows + tile.o0;
  }
  __device__ WeightGradientEnding<kColumns> ending(const Tile& tile) const {
    const std::int64_t row = first_row(tile);
    return {
        adds() ? &lockstep::at(op.acc, row, tile.k0) : &lockstep::at(op.dw, row, tile.k0),
        adds() ? op.acc.pitch : op.dw.pitch,
        tile.factors.a.rows,
        tile.factors.b.rows,
        wide,
        adds(),
        mul(lockstep::at(op.dy_scale, 0, tile.segment), lockstep::at(op.x_scale, 0, tile.segment))};
  }
  // Each thread asks for its row of what the tile adds to.
  __device__ void prefetch(const Tile& tile) const {
    static_assert(kFp8TileRows == kWarpgroup);
    const int row = static_cast<int>(threadIdx.x), chunks = tile.factors.b.rows / 4;
    if (adds() && wide && row < tile.factors.a.rows && chunks > 0)
      prefetch_row(&lockstep::at(op.acc, first_row(tile) + row, tile.k0), 16 * chunks);
  }
};

template <int kColumns>
__global__ void __launch_bounds__(kFp8Threads, 1)
    fp8_weight_gradient(const __grid_constant__ Fp8LinearWeightGradient op, bool wide) {
  pdl_begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  fp8_tiles(memory, WeightGradientTiles<kColumns>{op, wide});
}

template <int kColumns>
void launch_weight_gradient(CudaQueue queue, const Fp8LinearWeightGradient& op,
                            std::int64_t results) {
  const std::int64_t tiles =
      results * tiles_of_rows(op.dy.rows) * tiles_of_columns(op.x.rows, kColumns);
  launch_fp8_tiles<kColumns>(queue, tiles, fp8_weight_gradient<kColumns>, op,
                             all_vectorizable(op.dw, op.acc) && op.x.rows % 2 == 0);
}
void launch_weight_gradient(CudaQueue queue, const Fp8LinearWeightGradient& op) {
  const std::int64_t results = op.x_scale.cols / op.sources;
  if (fp8_tile_columns(results, op.dy.rows, op.x.rows, multiprocessors()) == kFp8TileColumns)
    return launch_weight_gradient<kFp8TileColumns>(queue, op, results);
  launch_weight_gradient<kFp8NarrowTileColumns>(queue, op, results);
}

template <class A>
void launch_own(CudaQueue queue, const Product& p, const ProductMemory& memory) {
  const In<A> a{static_cast<const A*>(memory.a), p.m, p.k, p.a_pitch};
  const In<e4m3> b{static_cast<const e4m3*>(memory.b), p.n, p.k, p.b_pitch};
  const In<float> a_scale{memory.a_scale, 1, 1, 1}, b_scale{memory.b_scale, 1, 1, 1};
  if constexpr (std::is_same_v<A, e5m2>) {
    if (p.fp32) {
      Fp8LinearWeightGradient op{.dy = a, .x = b, .dy_scale = a_scale, .x_scale = b_scale};
      auto* const c = static_cast<float*>(memory.c);
      if (p.accumulates) op.acc = {c, p.m, p.n, p.c_pitch};
      if (!p.accumulates) op.dw = {c, p.m, p.n, p.c_pitch};
      return launch_weight_gradient(queue, op);
    }
  }
  launch_row_product(queue,
                     RowProduct<A, e4m3>{.a = a,
                                         .b = b,
                                         .a_scale = a_scale,
                                         .b_scale = b_scale,
                                         .segments = {nullptr, nullptr, p.m, 1},
                                         .c = {static_cast<bf16*>(memory.c), p.m, p.n, p.c_pitch}});
}

}  // namespace

void run_own_fp8_product(CudaQueue queue, const Product& product, const ProductMemory& memory) {
  require(product.a_along && product.b_along, "the codes of a row lie along the sum");
  if (product.factors == Factors::e4m3) return launch_own<e4m3>(queue, product, memory);
  launch_own<e5m2>(queue, product, memory);
}

void run(CudaQueue queue, const Fp8LinearForward& op) {
  if (run_planned(queue, library_form(op)))
    return launch_clear_rows_not_in_use(queue, op.row_document, op.y);
  const RowSegments segments = segments_of(op, op.x.rows, op.x_scale.cols);
  launch_row_product(queue, RowProduct<e4m3, e4m3>{op.x, op.w, op.x_scale, op.w_scale,
                                                   op.row_document, segments, op.y});
}
void run(CudaQueue queue, const Fp8LinearInputGradient& op) {
  if (run_planned(queue, library_form(op)))
    return launch_clear_rows_not_in_use(queue, op.row_document, op.dx);
  const RowSegments segments = segments_of(op, op.dy.rows, op.dy_scale.cols);
  launch_row_product(queue, RowProduct<e5m2, e4m3>{op.dy, op.w, op.dy_scale, op.w_scale,
                                                   op.row_document, segments, op.dx});
}
void run(CudaQueue queue, const Fp8LinearWeightGradient& op) {
  if (!run_planned(queue, library_form(op))) launch_weight_gradient(queue, op);
}

}  // namespace lockstep
