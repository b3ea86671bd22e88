#include "kernels/core/require.h"
#include "kernels/cuda/gemm/linear_bf16.cuh"
#include "kernels/cuda/gemm/linear_plan.h"
#include "kernels/cuda/gemm/product.h"
#include "kernels/ops/linear.h"

namespace lockstep {
namespace {

inline constexpr int kTile = 64;   // Rows and columns of a block's tile.
inline constexpr int kDepth = 16;  // Elements of k in shared memory at a time.
inline constexpr int kOwn = 4;     // A thread owns 4 x 4 elements of the product.
inline constexpr int kPadded = kTile + 4;

// Neighbouring threads read neighbouring addresses.
template <class T, bool along_k>
__device__ void fetch(float (&tile)[kDepth][kPadded], const LinearFactor<T, along_k>& from,
                      std::int64_t m0, std::int64_t k0) {
  for (int e = static_cast<int>(threadIdx.x); e < kTile * kDepth; e += kThreads) {
    const int k = along_k ? e % kDepth : e / kTile;
    const int m = along_k ? e / kDepth : e % kTile;
    const bool inside =
        m0 + m < from.size && k0 + k < from.depth;  // Past the end both factors are +0.
    tile[k][m] = inside ? load(*from.at(m0 + m, k0 + k)) : 0.0f;
  }
}

// One accumulator per element of the product, k ascending, whatever the tile.
template <class T, bool a_along_k, bool b_along_k, class Result>
__global__ void __launch_bounds__(kThreads, 2)
    product(LinearFactor<T, a_along_k> a, LinearFactor<T, b_along_k> b, LinearResult<Result> c) {
  pdl_begin();
  __shared__ float a_tile[kDepth][kPadded];
  __shared__ float b_tile[kDepth][kPadded];
  const std::int64_t m0 = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const std::int64_t n0 = static_cast<std::int64_t>(blockIdx.y) * kTile;
  const int m_own = static_cast<int>(threadIdx.x) / 16 * kOwn;
  const int n_own = static_cast<int>(threadIdx.x) % 16 * kOwn;
  float acc[kOwn][kOwn] = {};
  for (std::int64_t k0 = 0; k0 < a.depth; k0 += kDepth) {
    fetch(a_tile, a, m0, k0);
    fetch(b_tile, b, n0, k0);
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
#pragma unroll
        for (int j = 0; j < kOwn; ++j)
          acc[i][j] = fma(a_tile[k][m_own + i], b_tile[k][n_own + j], acc[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const std::int64_t m = m0 + m_own + i;
      const std::int64_t n = n0 + n_own + j;
      if (m < a.size && n < b.size) c.put(m, n, add(acc[i][j], 0.0f));
    }
  }
}

template <class T, bool a_along_k, bool b_along_k, class Result>
void launch_product(CudaQueue queue, const LinearFactor<T, a_along_k>& a,
                    const LinearFactor<T, b_along_k>& b, const LinearResult<Result>& c) {
  if constexpr (std::is_same_v<T, bf16>) {
    launch(queue, dim3(blocks_for(a.size, kWideTile), blocks_for(b.size, kWideTile)),
           dim3(kThreads), kPdl, product_bf16<a_along_k, b_along_k, Result>, a, b, c);
  } else {
    launch(queue, dim3(blocks_for(a.size, kTile), blocks_for(b.size, kTile)), dim3(kThreads), kPdl,
           product<T, a_along_k, b_along_k, Result>, a, b, c);
  }
}

template <bool a_along, bool b_along, class Result>
void launch_own(CudaQueue queue, const Product& p, const ProductMemory& memory) {
  launch_product(
      queue, LinearFactor<bf16, a_along>{static_cast<const bf16*>(memory.a), p.a_pitch, p.m, p.k},
      LinearFactor<bf16, b_along>{static_cast<const bf16*>(memory.b), p.b_pitch, p.n, p.k},
      LinearResult<Result>{static_cast<Result*>(memory.c), p.c_pitch, p.accumulates});
}

}  // namespace

void run_own_product(CudaQueue queue, const Product& product, const ProductMemory& memory) {
  if (product.factors != Factors::bf16) return run_own_fp8_product(queue, product, memory);
  require(product.fp32 == !product.a_along && (product.a_along || !product.b_along),
          "a product of a linear layer");
  if (product.fp32) return launch_own<false, false, float>(queue, product, memory);
  if (product.b_along) return launch_own<true, true, bf16>(queue, product, memory);
  launch_own<true, false, bf16>(queue, product, memory);
}

template <class T>
void run(CudaQueue queue, const LinearForward<T>& op) {
  if (run_planned(queue, library_form(op))) return;
  const LinearFactor<T, true> x{op.x.data, op.x.pitch, op.x.rows, op.x.cols};
  const LinearFactor<T, true> w{op.w.data, op.w.pitch, op.w.rows, op.w.cols};
  launch_product(queue, x, w, LinearResult<T>{op.y.data, op.y.pitch, false});
}
template <class T>
void run(CudaQueue queue, const LinearInputGradient<T>& op) {
  if (run_planned(queue, library_form(op))) return;
  const LinearFactor<T, true> dy{op.dy.data, op.dy.pitch, op.dy.rows, op.dy.cols};
  const LinearFactor<T, false> w{op.w.data, op.w.pitch, op.w.cols, op.w.rows};
  launch_product(queue, dy, w, LinearResult<T>{op.dx.data, op.dx.pitch, false});
}
template <class T>
void run(CudaQueue queue, const LinearWeightGradient<T>& op) {
  if (run_planned(queue, library_form(op))) return;
  const LinearFactor<T, false> dy{op.dy.data, op.dy.pitch, op.dy.cols, op.dy.rows};
  const LinearFactor<T, false> x{op.x.data, op.x.pitch, op.x.cols, op.x.rows};
  launch_product(queue, dy, x,
                 op.acc ? LinearResult<float>{op.acc.data, op.acc.pitch, true}
                        : LinearResult<float>{op.dw.data, op.dw.pitch, false});
}
template void run(CudaQueue, const LinearForward<float>&);
template void run(CudaQueue, const LinearForward<bf16>&);
template void run(CudaQueue, const LinearInputGradient<float>&);
template void run(CudaQueue, const LinearInputGradient<bf16>&);
template void run(CudaQueue, const LinearWeightGradient<float>&);
template void run(CudaQueue, const LinearWeightGradient<bf16>&);

}  // namespace lockstep
