// bf16 gated RMSNorm, backward, for groups of 512 channels. A lane's 16 channels fit its registers,
// so that a warp that walks down 32 rows of a group, as CS does, has the sums of its columns itself
// and waits for no other. The next row is being copied to shared memory, which also holds the
// gains, since a lane reads them twice per row.
#pragma once

#include "kernels/cuda/common/barrier.cuh"
#include "kernels/cuda/common/gate.cuh"
#include "kernels/cuda/common/raise_amax.cuh"
#include "kernels/cuda/common/row_vec4.cuh"
#include "kernels/ops/gated_norm.h"

namespace lockstep {

// mul(u, rstd) of one element; `gate` is sigmoid(z).
__device__ __forceinline__ float scaled_u(float y, float z, float gate, float rstd) {
  return mul(mul(y, mul(z, gate)), rstd);
}
struct GatedGradient {
  float dy, dz;
};
// `nc` is the negative mean over the group of dout * gain * mul(u, rstd); `v` is mul(dout, gain).
__device__ __forceinline__ GatedGradient gated_gradient(float y, float z, float gate, float u,
                                                        float v, float nc, float rstd) {
  const float du = mul(rstd, fma(nc, u, v));
  return {.dy = mul(du, mul(z, gate)),
          .dz = mul(mul(du, y), mul(gate, fma(z, sub(1.0f, gate), 1.0f)))};
}

// A warp's shared memory.
struct GatedWalk {
  static constexpr int kSteps = 4, kWidth = 128 * kSteps;
  static constexpr int kWarps = 4, kThreads = kWarps * kWarp;
  static constexpr int kBlocks = 4;  // Per multiprocessor.
  static constexpr int kStages = 2, kOperands = 3;
  alignas(16) float gain[kWidth];
  bf16 rows[kStages][kOperands][kWidth];
};
// Starts copies of a row's y, z and dout from `column` on into stage `stage` of the warp's ring.
__device__ __forceinline__ void start_row_copies(const GatedNormBackward<bf16>& op,
                                                 const GatedWalk& own, std::uint32_t ring, int row,
                                                 int stage, int column) {
  const std::uint32_t to = ring + static_cast<std::uint32_t>(stage) * sizeof(own.rows[0]);
  const auto copy = [&](int which, const bf16* from) {
#pragma unroll
    for (int k = 0; k < GatedWalk::kWidth; k += kVec8 * kWarp) {
      copy_16(to + sizeof(bf16) * (which * GatedWalk::kWidth + k), from + k, true);
    }
  };
  copy(0, row_at(op.y, row, column));
  copy(1, row_at(op.z, row, column));
  copy(2, row_at(op.dout, row, column));
}
// `gains`: those of the lane's channels.
__device__ __forceinline__ void keep_gains(GatedWalk& own, const float* gains) {
#pragma unroll
  for (int s = 0; s < GatedWalk::kSteps; ++s)
    *reinterpret_cast<float4*>(own.gain + 128 * s + 4 * lane_index()) = vec4_of(gains, 128 * s);
}

static __global__ void __launch_bounds__(GatedWalk::kThreads, GatedWalk::kBlocks)
    gated_norm_backward_walk(GatedNormBackward<bf16> op) {
  pdl_begin();
  constexpr int kSteps = GatedWalk::kSteps, kWidth = GatedWalk::kWidth,
                kStages = GatedWalk::kStages;
  extern __shared__ __align__(16) std::byte memory[];
  GatedWalk& own = reinterpret_cast<GatedWalk*>(memory)[warp_index()];
  const auto groups = static_cast<std::uint32_t>(op.groups);
  const std::uint32_t item =
      blockIdx.x * GatedWalk::kWarps + static_cast<std::uint32_t>(warp_index());
  const int block = static_cast<int>(item / groups);
  const int group = static_cast<int>(item) - block * op.groups;
  const int begin = block * static_cast<int>(kRowBlock);
  const int count = ::min(static_cast<int>(op.y.rows) - begin, static_cast<int>(kRowBlock));
  if (count <= 0) return;
  const int lane = lane_index(), first = group * kWidth, columns = first + 4 * lane;
  const int column = first + kVec8 * lane;
  const std::uint32_t ring = kept_address(&own.rows[0][0][kVec8 * lane]);
  const auto start = [&](int row) {
    if (row < count) start_row_copies(op, own, ring, begin + row, row % kStages, column);
    close_copies();
  };
#pragma unroll
  for (int row = 0; row < kStages - 1; ++row) start(row);
  keep_gains(own, op.gain.data + columns);
  const bool own_real = lane < count && at(op.row_document, 0, begin + lane) >= 0;
  const float own_rstd = own_real ? at(op.rstd, begin + lane, group) : 0.0f;
  const std::uint32_t real = __ballot_sync(kAllLanes, own_real);
  float p[kSteps][4] = {};
  StoredMagnitudes magnitudes;
#pragma unroll 1
  for (int row = 0; row < count; ++row) {
    bf16* const dy_row = row_at(op.dy, begin + row, columns);
    bf16* const dz_row = row_at(op.dz, begin + row, columns);
    const int stage = row % kStages;
    __syncwarp();  // The previous row has been read.
    start(row + kStages - 1);
    wait_for_copies<kStages - 1>();
    __syncwarp();
    if (real >> row & 1) {
      const float rstd = __shfl_sync(kAllLanes, own_rstd, row);
      RowVec4<kSteps, true> y, z, dout;
      y.load(own.rows[stage][0], kWidth);
      z.load(own.rows[stage][1], kWidth);
      dout.load(own.rows[stage][2], kWidth);
      float gate[kSteps][4];  // sigmoid(z)
      Accumulators a;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const float4 gain = vec4_of(own.gain + 4 * lane, 128 * s);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          gate[s][c] = gate_of(z.step[s][c]);
          const float u = scaled_u(y.step[s][c], z.step[s][c], gate[s][c], rstd);
          a.acc[c] = fma(mul(dout.step[s][c], part(gain, c)), u, a.acc[c]);
          p[s][c] = fma(dout.step[s][c], u, p[s][c]);
        }
      }
      // Equal to div, since kWidth is a power of two.
      const float nc = neg(mul(add(tree128(a), 0.0f), 1.0f / kWidth));
      // Registers do not suffice to keep u and the gains, so this makes the compiler compute and
      // load them again.
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
#pragma unroll
        for (int c = 0; c < 4; ++c) asm volatile("" : "+f"(gate[s][c])::"memory");
      }
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const float4 gain = vec4_of(own.gain + 4 * lane, 128 * s);
        float dy[4], dz[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float u = scaled_u(y.step[s][c], z.step[s][c], gate[s][c], rstd);
          const float v = mul(dout.step[s][c], part(gain, c));
          const GatedGradient d =
              gated_gradient(y.step[s][c], z.step[s][c], gate[s][c], u, v, nc, rstd);
          dy[c] = d.dy;
          dz[c] = d.dz;
        }
        vec4(dy).store(dy_row + 128 * s);
        const Vec4 stored = vec4(dz);
        stored.store(dz_row + 128 * s);
        magnitudes.take_all(stored);
      }
    } else {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        Vec4{}.store(dy_row + 128 * s);
        Vec4{}.store(dz_row + 128 * s);
      }
    }
  }
  if (op.amax.data != nullptr) raise_amax(op.amax.data, magnitudes);
  float* const partial = row_at(op.partials, block, columns);
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    store_16(partial + 128 * s, bits(p[s][0]), bits(p[s][1]), bits(p[s][2]), bits(p[s][3]));
  }
}
inline void run_walk(CudaQueue queue, const GatedNormBackward<bf16>& op) {
  constexpr std::size_t kMemory = GatedWalk::kWarps * sizeof(GatedWalk);
  cuda_launch_check(cudaFuncSetAttribute(gated_norm_backward_walk,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(kMemory)));
  const std::int64_t warps = std::int64_t{blocks_for(op.y.rows, kRowBlock)} * op.groups;
  launch(queue, dim3(blocks_for(warps, GatedWalk::kWarps)), dim3(GatedWalk::kThreads),
         {.shared_bytes = kMemory, .overlaps = true}, gated_norm_backward_walk, op);
}

}  // namespace lockstep
