// The end of the backward scan in tiles: d(dt) from the sums of each row, and the parameters' sums
// over rows.
#pragma once

#include "kernels/cuda/mamba/scan_tiles.cuh"

namespace lockstep {

inline constexpr int kRateHeads = 8;
// Terms of eight heads: [head][row of the chunk].
using RateRows = float[kRateHeads][kTileRows + 1];
struct RateShared {
  RateRows dt, cs, g, q, dcs;
};

// Writes the terms of eight heads from `first` on. They replace the decays in `rows`.
__device__ __forceinline__ void give_rates(RateShared& shared, const ScanBackward<bf16>& op,
                                           const Chunk& chunk, int first) {
  auto& [dt, cs, g, q, dcs] = shared;
  const int heads = static_cast<int>(smaller(kRateHeads, op.heads - first));
  const int last = chunk.rows - 1;
  // Calls f(head, row), with neighbouring threads on neighbouring rows, or in the next lambda on
  // neighbouring heads.
  const auto by_rows = [&](auto f) {
    for (int e = static_cast<int>(threadIdx.x); e < heads * kTileRows; e += kThreads) {
      if (e % kTileRows <= last) f(e / kTileRows, e % kTileRows);
    }
    __syncthreads();
  };
  const auto by_heads = [&](auto f) {
    for (int e = static_cast<int>(threadIdx.x); e < chunk.rows * kRateHeads; e += kThreads) {
      if (e % kRateHeads < heads) f(e % kRateHeads, e / kRateHeads);
    }
    __syncthreads();
  };
  const auto sum_of = [&](RowSum which, int h, int j) {
    return row_sum(op, chunk.index, first + h, which, j);
  };
  by_rows([&](int h, int j) {
    const float* const kept = kept_decays(op, chunk.index, first + h);
    dt[h][j] = kept[j];
    cs[h][j] = kept[kTileRows + j];
    g[h][j] = sum_of(kSumG, h, j);
    q[h][j] = sum_of(kSumQ, h, j);
    dcs[h][j] = sub(sum_of(kSumH, h, j), mul(dt[h][j], g[h][j]));
  });
  const float end = cs[threadIdx.x % kRateHeads][last];
  __syncthreads();
  by_rows([&](int h, int j) {
    if (j != last) cs[h][j] = mul(expn(sub(cs[h][last], cs[h][j])), dt[h][j]);  // w_j
  });
  if (static_cast<int>(threadIdx.x) < heads) {
    const int h = static_cast<int>(threadIdx.x);
    cs[h][last] = mul(expn(sub(end, end)), dt[h][last]);
    float ex = 0.0f;
#pragma unroll 16
    for (int j = 0; j <= last; ++j) ex = fma(cs[h][j], q[h][j], ex);
    float ss = state_sum(op, chunk.index, first + h, 0);
    for (int w = 1; w < 8; ++w) ss = add(ss, state_sum(op, chunk.index, first + h, w));
    dcs[h][last] = add(dcs[h][last], fma(expn(end), add(ss, 0.0f), add(ex, 0.0f)));
    float sum = 0.0f;
#pragma unroll 16
    for (int j = last; j >= 0; --j) {
      sum = add(sum, dcs[h][j]);
      dcs[h][j] = sum;
    }
  }
  __syncthreads();
  by_heads([&](int h, int j) {
    const std::int64_t row = chunk.start + j;
    const int head = first + h;
    const float rate = rate_of(op, head);
    const float z = mul(fma(rate, dcs[h][j], g[h][j]), sigmoid(raw_dt(op, row, head)));
    store_rate(op, row, head, z);
    row_term(op, row, kDtBias, head) = z;
    row_term(op, row, kALog, head) = mul(mul(dt[h][j], dcs[h][j]), rate);
    row_term(op, row, kD, head) = sum_of(kSumD, h, j);
  });
}

// The partial sums of 32 rows, four per row of `dstates`, which is free by then.
__device__ __forceinline__ float& partial_sum(const ScanBackward<bf16>& op, std::int64_t block,
                                              std::int64_t column) {
  return op.dstates.data[block / 4 * op.dstates.pitch + block % 4 * 3 * op.heads + column];
}
static __global__ void __launch_bounds__(kThreads) tile_partial_sums(ScanBackward<bf16> op) {
  pdl_begin();
  const std::int64_t first = blockIdx.x * kRowBlock;
  const int rows = static_cast<int>(smaller(op.row_document.cols - first, kRowBlock));
  for (std::int64_t column = threadIdx.x; column < 3ll * op.heads; column += kThreads) {
    // All are loaded at once, also those of rows of no document, which are not added.
    float term[kRowBlock];
    bool counts[kRowBlock];
#pragma unroll
    for (int i = 0; i < kRowBlock; ++i) {
      const std::int64_t row = first + (i < rows ? i : 0);
      term[i] = at(op.rows, row, column);
      counts[i] = i < rows && at(op.row_document, 0, row) >= 0;
    }
    float p = 0.0f;
#pragma unroll
    for (int i = 0; i < kRowBlock; ++i) p = counts[i] ? add(p, term[i]) : p;
    partial_sum(op, blockIdx.x, column) = p;
  }
}
// Grid: sets of 32 columns. The block loads what one of its warps adds.
static __global__ void __launch_bounds__(kThreads) tile_parameter_sums(ScanBackward<bf16> op) {
  pdl_begin();
  constexpr int kAtOnce = 256;
  __shared__ float partial[kAtOnce][kWarp];
  const std::int64_t column = blockIdx.x * kWarp + lane_index();
  const bool inside = column < 3ll * op.heads;
  const std::int64_t blocks = (op.row_document.cols + kRowBlock - 1) / kRowBlock;
  float s = 0.0f;
  for (std::int64_t first = 0; first < blocks; first += kAtOnce) {
#pragma unroll
    for (int k = 0; k < kAtOnce; k += kWarps) {
      const int row = k + warp_index();
      if (inside && first + row < blocks)
        partial[row][lane_index()] = partial_sum(op, first + row, column);
    }
    __syncthreads();
    if (warp_index() == 0) {
      const int some = static_cast<int>(smaller(kAtOnce, blocks - first));
#pragma unroll 16
      for (int row = 0; row < some; ++row) s = add(s, partial[row][lane_index()]);
    }
    __syncthreads();
  }
  if (inside && warp_index() == 0) store_scan_parameter(op, column, add(s, 0.0f));
}

}  // namespace lockstep
