#include "kernels/cuda/common/tile_product.cuh"
#include "kernels/moe/expert_product.h"

namespace lockstep {
namespace {

// A tile of 64 buffer rows of one expert.
struct RowTile {
  int expert = -1;  // -1: the block has no tile, since the grid is an upper bound.
  std::int64_t first = 0;
  int rows = 0;
};
// The nth tile when every expert has as many tiles as its rows need. The grid is an upper bound.
__device__ RowTile row_tile(const In<std::int32_t>& start, const In<std::int32_t>& rows,
                            std::int64_t nth) {
  for (int e = 0; e < static_cast<int>(start.cols); ++e) {
    const std::int64_t own = at(rows, 0, e), tiles = (own + kSide - 1) / kSide;
    if (nth < tiles) {
      return {e, at(start, 0, e) + nth * kSide,
              static_cast<int>(smaller(kSide, own - nth * kSide))};
    }
    nth -= tiles;
  }
  return {};
}
unsigned most_row_tiles(std::int64_t buffer_rows, std::int64_t experts) {
  return blocks_for(buffer_rows, kSide) + static_cast<unsigned>(experts);
}

// 64 x 64 chains of a block, in either numerics, from factors given element by element. A thread of
// the fp32 form owns 4 x 4 of them.
template <class T>
struct Chains;

template <>
struct Chains<bf16> {
  using Staging = Stage;
  TileSum sum;
  template <class A, class B>
  __device__ void extend(Staging& stage, int depth, const A& a, const B& b) {
    lockstep::extend(sum, stage, depth, a, b);
  }
  template <class F>
  __device__ void each(F f) {
    sum.each(f);
  }
};

template <>
struct Chains<float> {
  static constexpr int kDepth = 16, kOwn = 4;
  struct Staging {
    float a[kDepth][kSide + 4];
    float b[kDepth][kSide + 4];
  };
  float acc[kOwn][kOwn] = {};

  template <class Factor>
  __device__ static void fill(float (&tile)[kDepth][kSide + 4], const Factor& from, int k0,
                              int depth) {
    for (int e = static_cast<int>(threadIdx.x); e < kSide * kDepth; e += kThreads) {
      const int k = e % kDepth, m = e / kDepth;
      tile[k][m] = m < from.size && k0 + k < depth ? from.element(m, k0 + k) : 0.0f;
    }
  }
  template <class A, class B>
  __device__ void extend(Staging& stage, int depth, const A& a, const B& b) {
    const int m_own = static_cast<int>(threadIdx.x) / 16 * kOwn,
              n_own = static_cast<int>(threadIdx.x) % 16 * kOwn;
    for (int k0 = 0; k0 < depth; k0 += kDepth) {
      __syncthreads();  // The previous elements of k have been used.
      fill(stage.a, a, k0, depth);
      fill(stage.b, b, k0, depth);
      __syncthreads();
      for (int k = 0; k < kDepth; ++k) {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
#pragma unroll
          for (int j = 0; j < kOwn; ++j)
            acc[i][j] = fma(stage.a[k][m_own + i], stage.b[k][n_own + j], acc[i][j]);
        }
      }
    }
  }
  template <class F>
  __device__ void each(F f) {
    const int m_own = static_cast<int>(threadIdx.x) / 16 * kOwn,
              n_own = static_cast<int>(threadIdx.x) % 16 * kOwn;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
#pragma unroll
      for (int j = 0; j < kOwn; ++j) f(m_own + i, n_own + j, acc[i][j]);
    }
  }
};

// The columns of the result that the block's tile covers.
__device__ int own_columns(std::int64_t n0, std::int64_t columns) {
  return static_cast<int>(smaller(kSide, columns - n0));
}

// Stores those results of the tile that exist.
template <class T, class Result>
__device__ void store(Chains<T>& chains, const Out<Result>& out, std::int64_t m0, int rows,
                      std::int64_t n0, int columns) {
  chains.each([&](int m, int n, float value) {
    if (m < rows && n < columns) at(out, m0 + m, n0 + n) = st<Result>(add(value, 0.0f));
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) expert_forward(ExpertForward<T> op) {
  pdl_begin();
  __shared__ typename Chains<T>::Staging stage;
  const RowTile tile = row_tile(op.start, op.rows, blockIdx.x);
  if (tile.expert < 0) return;
  const std::int64_t n0 = static_cast<std::int64_t>(blockIdx.y) * kSide,
                     w0 = tile.expert * op.y.cols + n0;
  const int columns = own_columns(n0, op.y.cols);
  Chains<T> chains;
  chains.extend(stage, static_cast<int>(op.x.cols),
                along_k(tile.rows, [&](int m, int k) { return at(op.x, tile.first + m, k); }),
                along_k(columns, [&](int n, int k) { return at(op.w, w0 + n, k); }));
  store(chains, op.y, tile.first, tile.rows, n0, columns);
}

template <class T>
__global__ void __launch_bounds__(kThreads) expert_input_gradient(ExpertInputGradient<T> op) {
  pdl_begin();
  __shared__ typename Chains<T>::Staging stage;
  const RowTile tile = row_tile(op.start, op.rows, blockIdx.x);
  if (tile.expert < 0) return;
  const std::int64_t n0 = static_cast<std::int64_t>(blockIdx.y) * kSide,
                     w0 = tile.expert * op.dy.cols;
  const int columns = own_columns(n0, op.dx.cols);
  Chains<T> chains;
  chains.extend(stage, static_cast<int>(op.dy.cols),
                along_k(tile.rows, [&](int m, int k) { return at(op.dy, tile.first + m, k); }),
                across_k(columns, [&](int n, int k) { return at(op.w, w0 + k, n0 + n); }));
  store(chains, op.dx, tile.first, tile.rows, n0, columns);
}

// k counts the expert's rows from its first.
template <class T>
__global__ void __launch_bounds__(kThreads) expert_weight_gradient(ExpertWeightGradient<T> op) {
  pdl_begin();
  __shared__ typename Chains<T>::Staging stage;
  const std::int64_t expert = blockIdx.z, first = at(op.start, 0, expert);
  const std::int64_t m0 = static_cast<std::int64_t>(blockIdx.x) * kSide;
  const std::int64_t n0 = static_cast<std::int64_t>(blockIdx.y) * kSide;
  const int outputs = own_columns(m0, op.dy.cols), inputs = own_columns(n0, op.x.cols);
  Chains<T> chains;
  chains.extend(stage, at(op.rows, 0, expert),
                across_k(outputs, [&](int m, int k) { return at(op.dy, first + k, m0 + m); }),
                across_k(inputs, [&](int n, int k) { return at(op.x, first + k, n0 + n); }));
  store(chains, op.dw, expert * op.dy.cols + m0, outputs, n0, inputs);
}

}  // namespace

template <class T>
void run(CudaQueue queue, const ExpertForward<T>& op) {
  clear_rows_of_no_document(queue, op.row_pair, op.y);  // Padding rows.
  launch(queue, dim3(most_row_tiles(op.y.rows, op.start.cols), blocks_for(op.y.cols, kSide)),
         dim3(kThreads), kPdl, expert_forward<T>, op);
}
template <class T>
void run(CudaQueue queue, const ExpertInputGradient<T>& op) {
  clear_rows_of_no_document(queue, op.row_pair, op.dx);
  launch(queue, dim3(most_row_tiles(op.dx.rows, op.start.cols), blocks_for(op.dx.cols, kSide)),
         dim3(kThreads), kPdl, expert_input_gradient<T>, op);
}
template <class T>
void run(CudaQueue queue, const ExpertWeightGradient<T>& op) {
  const dim3 grid(blocks_for(op.dy.cols, kSide), blocks_for(op.x.cols, kSide),
                  static_cast<unsigned>(op.start.cols));
  launch(queue, grid, dim3(kThreads), kPdl, expert_weight_gradient<T>, op);
}
template void run(CudaQueue, const ExpertForward<float>&);
template void run(CudaQueue, const ExpertForward<bf16>&);
template void run(CudaQueue, const ExpertInputGradient<float>&);
template void run(CudaQueue, const ExpertInputGradient<bf16>&);
template void run(CudaQueue, const ExpertWeightGradient<float>&);
template void run(CudaQueue, const ExpertWeightGradient<bf16>&);

}  // namespace lockstep
