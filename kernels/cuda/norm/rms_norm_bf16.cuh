// bf16 RMSNorm that reads every element once. Backward: a block owns 32 physical rows, as CS does,
// and copies some of them at a time to shared memory. One warp per row computes dx, then each
// thread adds its columns in the order of the rows. The next rows are loaded when these have been
// used; meanwhile the other block of the multiprocessor works.
#pragma once

#include "kernels/cuda/common/barrier.cuh"
#include "kernels/cuda/common/raise_amax.cuh"
#include "kernels/cuda/common/row_vec4.cuh"
#include "kernels/ops/residual.h"
#include "kernels/ops/rms_norm.h"

namespace lockstep {

// kAdds: x is the residual stream with y added, which ResidualForward without dropout makes.
template <int kSteps, bool kFull, bool kAdds>
__global__ void __launch_bounds__(kThreads)
    rms_norm_forward_bf16(RmsNormForward<bf16> op, ResidualForward<bf16> residual) {
  pdl_begin();
  const std::int64_t i = warp_item();
  if (i >= op.x.rows) return;
  const int d = static_cast<int>(op.x.cols);
  RowVec4<kSteps, kFull> x, added;
  x.load(kAdds ? &at(residual.residual, i, 0) : &at(op.x, i, 0), d);
  if constexpr (kAdds) added.load(&at(residual.y, i, 0), d);
  const bool real = at(op.row_document, 0, i) >= 0;  // Loaded together with the row.
  if constexpr (kAdds) {
    bf16* const out = &at(residual.out, i, 0);
    each_vec4<kSteps, kFull>(d, [&](int s, int k) {
      float sum[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[c] = add(x.step[s][c], added.step[s][c]);
      x.step[s] = real ? vec4(sum) : Vec4{};
      x.step[s].store(out + k);
    });
  }
  Accumulators a;
  each_vec4<kSteps, kFull>(d, [&](int s, int) {
#pragma unroll
    for (int c = 0; c < 4; ++c) a.acc[c] = fma(x.step[s][c], x.step[s][c], a.acc[c]);
  });
  const float rstd =
      real ? rsqrt(add(div(add(tree128(a), 0.0f), static_cast<float>(d)), op.eps)) : 0.0f;
  const int lane = 4 * lane_index();
  const float* const gains = op.gain.data + lane;
  bf16* const y_row = &at(op.y, i, 0) + lane;
  StoredMagnitudes magnitudes;
  each_vec4<kSteps, kFull>(d, [&](int s, int) {
    const float4 gain = vec4_of(gains, 128 * s);
    float y[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) y[c] = mul(mul(x.step[s][c], rstd), part(gain, c));
    const Vec4 stored = real ? vec4(y) : Vec4{};
    stored.store(y_row + 128 * s);
    magnitudes.take_all(stored);
  });
  if (op.amax.data != nullptr) raise_amax(op.amax.data, magnitudes);
  if (lane_index() == 0) at(op.rstd, 0, i) = rstd;
}

// Rows of at most 128 kSteps elements. Short rows are all loaded at once: a small model has few
// blocks, so that the time of a single one counts.
template <int kSteps>
struct NormBlock {
  static constexpr int kRows = kSteps <= 4 ? kRowBlock : 8;  // At once, one warp each.
  static constexpr int kTurns = kRowBlock / kRows;
  static constexpr int kThreads = kRows * kWarp;
  static constexpr int kBlocks = kSteps == 16 ? 2 : 1;  // Per multiprocessor.
  static constexpr int kPairs =
      (64 * kSteps + kThreads - 1) / kThreads;  // Pairs of columns per thread.

  static constexpr bool kKeepsGains = kSteps > 4;  // In shared memory, for all turns.

  static std::size_t memory(std::int64_t d) {
    return static_cast<std::size_t>(2 * kRows * d) * sizeof(bf16) +
           static_cast<std::size_t>(kKeepsGains ? d : 0) * sizeof(float);
  }
};

// Computes dx of the warp's row, from x and dy in shared memory and gains in any memory, and takes
// its magnitudes.
template <int kSteps, bool kFull>
__device__ __forceinline__ void rms_norm_row(const RmsNormBackward<bf16>& op, std::int64_t i,
                                             bool real, float rstd, const bf16* from_x,
                                             const bf16* from_dy, const float* from_gain,
                                             StoredMagnitudes& magnitudes) {
  const int d = static_cast<int>(op.x.cols);
  const int lane =
      4 * lane_index();  // The lane's first quad; the others follow 128 elements apart.
  const float* const gains = from_gain + lane;
  bf16* const dx_row = &at(op.dx, i, 0) + lane;
  const bool adds = op.dresidual.data != nullptr;
  RowVec4<kSteps, kFull> residual = {};
  if (adds) residual.load(&at(op.dresidual, i, 0), d);  // Loaded before the sum, used after it.
  RowVec4<kSteps, kFull> x;
  RowVec4<kSteps, kFull> dy;
  x.load(from_x, d);
  dy.load(from_dy, d);
  Accumulators a;
  each_vec4<kSteps, kFull>(d, [&](int s, int) {
    const float4 gain = vec4_of(gains, 128 * s);
#pragma unroll
    for (int c = 0; c < 4; ++c)
      a.acc[c] = fma(mul(dy.step[s][c], part(gain, c)), mul(x.step[s][c], rstd), a.acc[c]);
  });
  const float nc = neg(div(add(tree128(a), 0.0f), static_cast<float>(d)));
  each_vec4<kSteps, kFull>(d, [&](int s, int) {
    const float4 gain = vec4_of(gains, 128 * s);
    float dx[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float own =
          mul(rstd, fma(nc, mul(x.step[s][c], rstd), mul(dy.step[s][c], part(gain, c))));
      dx[c] = adds ? add(residual.step[s][c], own) : own;
    }
    const Vec4 stored = real ? vec4(dx) : Vec4{};
    stored.store(dx_row + 128 * s);
    magnitudes.take_all(stored);
  });
}

// Grid: blocks of 32 rows. A thread owns two neighbouring columns of every 2 kThreads. Rows are
// copied before it is known whether they belong to a document; those that do not are zeroed on
// arrival.
template <int kSteps, bool kFull, class Block = NormBlock<kSteps>>
__global__ void __launch_bounds__(Block::kThreads, Block::kBlocks)
    rms_norm_backward_bf16(RmsNormBackward<bf16> op) {
  pdl_begin();
  extern __shared__ __align__(16) std::byte memory[];
  __shared__ float rstds[kRowBlock];
  __shared__ bool real[kRowBlock];
  const int d = static_cast<int>(op.x.cols);
  const std::int64_t first = blockIdx.x * kRowBlock;
  bf16* const all_x = reinterpret_cast<bf16*>(memory);
  bf16* const all_dy = all_x + Block::kRows * d;
  bf16* const own_x = all_x + warp_index() * d;
  bf16* const own_dy = all_dy + warp_index() * d;
  float* const kept_gains = reinterpret_cast<float*>(all_dy + Block::kRows * d);
  const float* const gains = Block::kKeepsGains ? kept_gains : op.gain.data;
  const auto start = [&](int turn) {
    const std::int64_t i = smaller(first + turn * Block::kRows + warp_index(), op.x.rows - 1);
#pragma unroll 1
    for (int k = kVec8 * lane_index(); k < d; k += kVec8 * kWarp) {
      copy_16(shared_address(own_x + k), &at(op.x, i, k), true);
      copy_16(shared_address(own_dy + k), &at(op.dy, i, k), true);
    }
    close_copies();
  };
  start(0);
  if constexpr (Block::kKeepsGains) {
    for (int k = 4 * static_cast<int>(threadIdx.x); k < d; k += 4 * Block::kThreads) {
      *reinterpret_cast<float4*>(kept_gains + k) = vec4_of(op.gain.data, k);
    }
  }
  if (threadIdx.x < kRowBlock) {
    const std::int64_t i = first + threadIdx.x;
    real[threadIdx.x] = i < op.x.rows && at(op.row_document, 0, i) >= 0;
    rstds[threadIdx.x] = real[threadIdx.x] ? at(op.rstd, 0, i) : 0.0f;
  }
  __syncthreads();
  constexpr bool kWhole =
      kFull && 64 * kSteps % Block::kThreads == 0;  // Every thread has kPairs pairs of columns.
  float p[Block::kPairs][2] = {};
  StoredMagnitudes magnitudes;
#pragma unroll 1
  for (int turn = 0; turn < Block::kTurns; ++turn) {
    const int i = turn * Block::kRows + warp_index();
    wait_for_copies<0>();
    if (!real[i]) {
      clear_own_vec8(own_x, d);
      clear_own_vec8(own_dy, d);
    }
    __syncwarp();
    if (first + i < op.x.rows)
      rms_norm_row<kSteps, kFull>(op, first + i, real[i], rstds[i], own_x, own_dy, gains,
                                  magnitudes);
    __syncthreads();
    const float* const rstd = rstds + turn * Block::kRows;
#pragma unroll
    for (int o = 0; o < Block::kPairs; ++o) {
      const int k = 2 * (o * Block::kThreads + static_cast<int>(threadIdx.x));
      if (!kWhole && k >= d) continue;
#pragma unroll 8
      for (int w = 0; w < Block::kRows; ++w) {
        const std::uint32_t of_x = *reinterpret_cast<const std::uint32_t*>(all_x + w * d + k);
        const std::uint32_t of_dy = *reinterpret_cast<const std::uint32_t*>(all_dy + w * d + k);
        p[o][0] = fma(from_bits(of_dy << 16), mul(from_bits(of_x << 16), rstd[w]), p[o][0]);
        p[o][1] = fma(from_bits(of_dy & 0xffff0000u), mul(from_bits(of_x & 0xffff0000u), rstd[w]),
                      p[o][1]);
      }
    }
    __syncthreads();  // The rows have been used.
    if (turn + 1 < Block::kTurns) start(turn + 1);
  }
#pragma unroll
  for (int o = 0; o < Block::kPairs; ++o) {
    const int k = 2 * (o * Block::kThreads + static_cast<int>(threadIdx.x));
    if (kWhole || k < d) store_8(&at(op.partials, blockIdx.x, k), bits(p[o][0]), bits(p[o][1]));
  }
  if (op.amax.data != nullptr) raise_amax(op.amax.data, magnitudes);
}

// Other sizes and alignments take the plain kernels.
inline bool runs_wide(const RmsNormForward<bf16>& op) {
  return op.x.cols % kVec8 == 0 && op.x.cols <= 4096 && all_vectorizable(op.x, op.gain, op.y);
}
inline bool runs_wide(const RmsNormBackward<bf16>& op) {
  return op.x.cols % kVec8 == 0 && op.x.cols <= 4096 &&
         all_vectorizable(op.x, op.gain, op.dy, op.dresidual, op.dx, op.partials);
}
inline void run_wide(CudaQueue queue, const RmsNormForward<bf16>& op) {
  with_steps<4, 16, 32>(op.x.cols, [&]<int kSteps, bool kFull>() {
    launch(queue, dim3(blocks_for(op.x.rows, kWarps)), dim3(kThreads), kPdl,
           rms_norm_forward_bf16<kSteps, kFull, false>, op, ResidualForward<bf16>{});
  });
}
// Adds to the residual stream and norms the sum.
inline bool runs_wide(const ResidualForward<bf16>& residual, const RmsNormForward<bf16>& op) {
  return !residual.dropout.active && residual.out == op.x && runs_wide(op) &&
         residual.row_document == op.row_document &&
         all_vectorizable(residual.residual, residual.y, residual.out);
}
inline void run_wide(CudaQueue queue, const ResidualForward<bf16>& residual,
                     const RmsNormForward<bf16>& op) {
  with_steps<4, 16, 32>(op.x.cols, [&]<int kSteps, bool kFull>() {
    launch(queue, dim3(blocks_for(op.x.rows, kWarps)), dim3(kThreads), kPdl,
           rms_norm_forward_bf16<kSteps, kFull, true>, op, residual);
  });
}
inline void run_wide(CudaQueue queue, const RmsNormBackward<bf16>& op) {
  with_steps<4, 16, 32>(op.x.cols, [&]<int kSteps, bool kFull>() {
    using Block = NormBlock<kSteps>;
    const auto kernel = rms_norm_backward_bf16<kSteps, kFull>;
    const std::size_t memory = Block::memory(op.x.cols);
    cuda_launch_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(memory)));
    launch(queue, dim3(blocks_for(op.x.rows, kRowBlock)), dim3(Block::kThreads),
           {.shared_bytes = memory, .overlaps = true}, kernel, op);
  });
  fold(queue, op.partials, op.dgain, op.total);
}

}  // namespace lockstep
