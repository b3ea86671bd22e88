#include "kernels/core/require.h"
#include "kernels/core/row_segments.h"
#include "kernels/cuda/gemm/fp8_tile.cuh"
#include "kernels/cuda/gemm/linear_plan.h"
#include "kernels/ops/fp8.h"

namespace lockstep {
namespace {

// A tile of 128 rows of one segment.
struct RowTile {
  std::int64_t segment = -1;  // -1: the block has no tile, since the grid is an upper bound.
  std::int64_t first = 0;
  std::int64_t rows = 0;
};
// The nth tile when every segment has as many tiles as its rows need.
__device__ RowTile row_tile(const RowSegments& segments, std::int64_t nth) {
  for (std::int64_t s = 0; s < segments.count; ++s) {
    const std::int64_t own = segments.size(s), tiles = (own + kFp8Tile - 1) / kFp8Tile;
    if (nth < tiles)
      return {s, segments.first(s) + nth * kFp8Tile, smaller(kFp8Tile, own - nth * kFp8Tile)};
    nth -= tiles;
  }
  return {};
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

template <class A, class B>
__global__ void __launch_bounds__(kThreads, 1)
    product_of_rows(const __grid_constant__ RowProduct<A, B> op) {
  pdl_begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  const RowTile tile = row_tile(op.segments, blockIdx.x);
  if (tile.segment < 0) return;
  const std::int64_t expert = tile.segment / (op.segments.count / op.b_scale.cols);
  const std::int64_t n0 = static_cast<std::int64_t>(blockIdx.y) * kFp8Tile;
  const std::int64_t columns = smaller(kFp8Tile, op.c.cols - n0);
  Fp8Sums sums;
  sums.multiply(*reinterpret_cast<Fp8Shared*>(memory),
                Fp8Rows<A>{&at(op.a, tile.first, 0), op.a.pitch, tile.rows, op.a.cols},
                Fp8Rows<B>{&at(op.b, expert * op.c.cols + n0, 0), op.b.pitch, columns, op.a.cols});
  const float scale = mul(at(op.a_scale, 0, tile.segment), at(op.b_scale, 0, expert));
  sums.each([&](int m, int n, float sum) {
    if (m >= tile.rows || n >= columns) return;
    const std::int64_t row = tile.first + m;
    const bool used = op.row_document.data == nullptr || at(op.row_document, 0, row) >= 0;
    at(op.c, row, n0 + n) = st<bf16>(used ? mul(sum, scale) : 0.0f);
  });
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
  auto* const kernel = product_of_rows<A, B>;
  cuda_launch_check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Fp8Shared)));
  unsigned tiles = blocks_for(op.a.rows, kFp8Tile);
  if (op.segments.listed()) {
    tiles += static_cast<unsigned>(op.segments.count);
    launch(queue, dim3(blocks_for(op.c.rows, kWarps)), dim3(kThreads), kPdl,
           clear_rows_of_no_segment, op.segments, op.c);
  }
  launch(queue, dim3(tiles, blocks_for(op.c.cols, kFp8Tile)), dim3(kThreads),
         {.shared_bytes = sizeof(Fp8Shared), .overlaps = true}, kernel, op);
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

// The places of a segment in transposed codes begin at a multiple of 16, and end in code 00.
__global__ void __launch_bounds__(kThreads, 1)
    fp8_weight_gradient(const __grid_constant__ Fp8LinearWeightGradient op) {
  pdl_begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  const std::int64_t segment = blockIdx.z;
  const RowSegments segments = segments_of(op, op.x.cols, op.x_scale.cols);
  const std::int64_t place = segments.listed() ? segments.place(segment) : 0;
  const std::int64_t depth = fp8_padded(segments.size(segment));
  const std::int64_t o0 = static_cast<std::int64_t>(blockIdx.x) * kFp8Tile;
  const std::int64_t k0 = static_cast<std::int64_t>(blockIdx.y) * kFp8Tile;
  const std::int64_t outputs = smaller(kFp8Tile, op.dy.rows - o0);
  const std::int64_t inputs = smaller(kFp8Tile, op.x.rows - k0);
  Fp8Sums sums;
  sums.multiply(*reinterpret_cast<Fp8Shared*>(memory),
                Fp8Rows<e5m2>{&at(op.dy, o0, place), op.dy.pitch, outputs, depth},
                Fp8Rows<e4m3>{&at(op.x, k0, place), op.x.pitch, inputs, depth});
  const float scale = mul(at(op.dy_scale, 0, segment), at(op.x_scale, 0, segment));
  sums.each([&](int m, int n, float sum) {
    if (m >= outputs || n >= inputs) return;
    const std::int64_t row = segment * op.dy.rows + o0 + m, column = k0 + n;
    const float g = mul(sum, scale);
    if (op.dw.data != nullptr) {
      at(op.dw, row, column) = g;
    } else {
      at(op.acc, row, column) = add(at(op.acc, row, column), g);
    }
  });
}

void launch_weight_gradient(CudaQueue queue, const Fp8LinearWeightGradient& op) {
  cuda_launch_check(cudaFuncSetAttribute(
      fp8_weight_gradient, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Fp8Shared)));
  const dim3 grid(blocks_for(op.dy.rows, kFp8Tile), blocks_for(op.x.rows, kFp8Tile),
                  static_cast<unsigned>(op.x_scale.cols));
  launch(queue, grid, dim3(kThreads), {.shared_bytes = sizeof(Fp8Shared), .overlaps = true},
         fp8_weight_gradient, op);
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
