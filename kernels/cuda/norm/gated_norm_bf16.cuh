// bf16 gated RMSNorm that reads every element once, for groups of at most 1,024 channels. Backward:
// a block owns 32 physical rows of one group, as CS does, and copies them to shared memory eight at
// a time while the previous eight are used: first by one warp per row, then by one thread per
// column in the order of the rows. Groups of 512 channels take gated_norm_column_strip_bf16.cuh
// instead.
#pragma once

#include "kernels/cuda/common/barrier.cuh"
#include "kernels/cuda/common/gate.cuh"
#include "kernels/cuda/common/raise_amax.cuh"
#include "kernels/cuda/common/row_vec4.cuh"
#include "kernels/cuda/norm/gated_norm_column_strip_bf16.cuh"
#include "kernels/ops/gated_norm.h"

namespace lockstep {

// A row of a group in shared memory, twice for each warp: y and z of the current row and of the
// next one.
template <int kSteps>
struct GatedPair {
  static constexpr int kWidth = 128 * kSteps;
  static constexpr std::size_t kBytes = 2 * 2 * kWarps * kWidth * sizeof(bf16);
  bf16* y;
  bf16* z;

  __device__ __forceinline__ GatedPair(std::byte* memory, int turn)
      : y(reinterpret_cast<bf16*>(memory) + 2 * kWidth * (turn % 2 * kWarps + warp_index())),
        z(y + kWidth) {}
};

// A warp takes `per_warp` neighbouring rows of a group and copies the next one while it works,
// whether it belongs to a document or not: the compiler by itself would load a row's y only after
// its gates are computed.
inline constexpr int kForwardBlocks = 4;  // Per multiprocessor.
template <int kSteps, bool kFull>
__global__ void __launch_bounds__(kThreads, kSteps <= 4 ? kForwardBlocks : 1)
    gated_norm_forward_bf16(GatedNormForward<bf16> op, int per_warp) {
  pdl_begin();
  extern __shared__ __align__(16) std::byte memory[];
  const auto groups = static_cast<std::uint32_t>(op.groups);
  const std::uint32_t item = blockIdx.x * kWarps + static_cast<std::uint32_t>(warp_index());
  const std::uint32_t part_of_rows = item / groups;
  const int group = static_cast<int>(item - part_of_rows * groups);
  const int width =
      kFull ? 128 * kSteps : static_cast<int>(static_cast<std::uint32_t>(op.y.cols) / groups);
  const int first = group * width;
  const std::int64_t begin = std::int64_t{part_of_rows} * per_warp;
  const int rows = static_cast<int>(smaller(per_warp, op.y.rows - begin));
  if (rows <= 0) return;
  const int lane = 4 * lane_index();
  const bf16* y_from = &at(op.y, begin, first) + 2 * lane;
  const bf16* z_from = &at(op.z, begin, first) + 2 * lane;
  bf16* o_row = &at(op.o, begin, first) + lane;
  const float* const gains = op.gain.data + first + lane;
  const auto start = [&](int turn) {
    if (turn < rows) {
      const GatedPair<kSteps> to(memory, turn);
#pragma unroll
      for (int k = 0; k < 128 * kSteps; k += kVec8 * kWarp) {
        if (k + 2 * lane >= width) continue;
        copy_16(shared_address(to.z + 2 * lane + k), z_from + k, true);
        copy_16(shared_address(to.y + 2 * lane + k), y_from + k, true);
      }
      y_from += op.y.pitch;
      z_from += op.z.pitch;
    }
    close_copies();
  };
  start(0);
  StoredMagnitudes magnitudes;
#pragma unroll 1
  for (int turn = 0; turn < rows; ++turn) {
    const bool real = at(op.row_document, 0, begin + turn) >= 0;
    start(turn + 1);
    wait_for_copies<1>();
    __syncwarp();
    const GatedPair<kSteps> from(memory, turn);
    RowVec4<kSteps, kFull> y;
    RowVec4<kSteps, kFull> z;
    y.load(from.y, width);
    z.load(from.z, width);
    float u[kSteps][4] = {};
    Accumulators a;
    each_vec4<kSteps, kFull>(width, [&](int s, int) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        u[s][c] = mul(y.step[s][c], gated(z.step[s][c]));
        a.acc[c] = fma(u[s][c], u[s][c], a.acc[c]);
      }
    });
    float4 gain[kSteps];
    each_vec4<kSteps, kFull>(width, [&](int s, int) { gain[s] = vec4_of(gains, 128 * s); });
    const float ss = add(tree128(a), 0.0f);
    const float rstd = real ? rsqrt(add(div(ss, static_cast<float>(width)), op.eps)) : 0.0f;
    each_vec4<kSteps, kFull>(width, [&](int s, int) {
      float o[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) o[c] = mul(mul(u[s][c], rstd), part(gain[s], c));
      const Vec4 stored = real ? vec4(o) : Vec4{};
      stored.store(o_row + 128 * s);
      magnitudes.take_all(stored);
    });
    if (lane == 0) at(op.rstd, begin + turn, group) = rstd;
    o_row += op.o.pitch;
    __syncwarp();  // The copied row has been used.
  }
  if (op.amax.data != nullptr) raise_amax(op.amax.data, magnitudes);
}

// Eight rows of a group in shared memory: mul(u, rstd), and the operands for two turns.
struct GatedRows {
  float* u;
  bf16* operands;
  int width;

  __device__ __forceinline__ GatedRows(std::byte* memory, int cols)
      : u(reinterpret_cast<float*>(memory)),
        operands(reinterpret_cast<bf16*>(u + kWarps * cols)),
        width(cols) {}
  static std::size_t bytes(std::int64_t cols) {
    return static_cast<std::size_t>(kWarps * cols) * (sizeof(float) + 2 * 3 * sizeof(bf16));
  }
  __device__ __forceinline__ bf16* operand(int turn, int warp, int which) const {
    return operands + (3 * (turn % 2 * kWarps + warp) + which) * width;
  }
  __device__ __forceinline__ bf16* y(int turn, int warp) const { return operand(turn, warp, 0); }
  __device__ __forceinline__ bf16* z(int turn, int warp) const { return operand(turn, warp, 1); }
  __device__ __forceinline__ bf16* dout(int turn, int warp) const { return operand(turn, warp, 2); }

  // Starts copies of the warp's row i from column `first` on.
  __device__ __forceinline__ void start(const GatedNormBackward<bf16>& op, int turn, std::int64_t i,
                                        std::int64_t first) const {
#pragma unroll 1
    for (int k = kVec8 * lane_index(); k < width; k += kVec8 * kWarp) {
      copy_16(shared_address(y(turn, warp_index()) + k), &at(op.y, i, first + k), true);
      copy_16(shared_address(z(turn, warp_index()) + k), &at(op.z, i, first + k), true);
      copy_16(shared_address(dout(turn, warp_index()) + k), &at(op.dout, i, first + k), true);
    }
  }
  __device__ __forceinline__ void clear(int turn) const {
    for (int which = 0; which < 3; ++which)
      clear_own_vec8(operand(turn, warp_index(), which), width);
  }
};

// Computes dy and dz of the warp's row, and mul(u, rstd) into shared memory. `writes`: the row
// exists. `magnitudes`: of dz.
template <int kSteps, bool kFull>
__device__ __forceinline__ void gated_norm_row(const GatedNormBackward<bf16>& op, int turn,
                                               std::int64_t i, std::int64_t first, bool writes,
                                               bool real, float rstd, const GatedRows& rows,
                                               StoredMagnitudes& magnitudes) {
  const int width = rows.width;
  const int w = warp_index();
  // The lane's first quad begins here, the others follow 128 elements apart.
  const int lane = 4 * lane_index();
  const float* const gains = op.gain.data + first + lane;
  float* const u_row = rows.u + w * width + lane;
  RowVec4<kSteps, kFull> y;
  RowVec4<kSteps, kFull> z;
  RowVec4<kSteps, kFull> dout;
  y.load(rows.y(turn, w), width);
  z.load(rows.z(turn, w), width);
  dout.load(rows.dout(turn, w), width);
  float gate[kSteps][4] = {};  // sigmoid(z)
  float u[kSteps][4] = {};     // mul(u, rstd)
  Accumulators a;
  each_vec4<kSteps, kFull>(width, [&](int s, int) {
    const float4 gain = vec4_of(gains, 128 * s);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      gate[s][c] = gate_of(z.step[s][c]);
      u[s][c] = scaled_u(y.step[s][c], z.step[s][c], gate[s][c], rstd);
      a.acc[c] = fma(mul(dout.step[s][c], part(gain, c)), u[s][c], a.acc[c]);
    }
    *reinterpret_cast<float4*>(u_row + 128 * s) = make_float4(u[s][0], u[s][1], u[s][2], u[s][3]);
  });
  const float nc = neg(div(add(tree128(a), 0.0f), static_cast<float>(width)));
  if (!writes) return;
  bf16* const dy_row = &at(op.dy, i, first) + lane;
  bf16* const dz_row = &at(op.dz, i, first) + lane;
  each_vec4<kSteps, kFull>(width, [&](int s, int) {
    const float4 gain = vec4_of(gains, 128 * s);
    float dy[4];
    float dz[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float v = mul(dout.step[s][c], part(gain, c));
      const GatedGradient d =
          gated_gradient(y.step[s][c], z.step[s][c], gate[s][c], u[s][c], v, nc, rstd);
      dy[c] = d.dy;
      dz[c] = d.dz;
    }
    (real ? vec4(dy) : Vec4{}).store(dy_row + 128 * s);
    const Vec4 stored = real ? vec4(dz) : Vec4{};
    stored.store(dz_row + 128 * s);
    magnitudes.take_all(stored);
  });
}

// Grid: (32 rows, group). Rows are copied before it is known whether they belong to a document;
// those that do not are zeroed on arrival. With three blocks per multiprocessor registers would not
// suffice.
template <int kSteps, bool kFull>
__global__ void __launch_bounds__(kThreads, kSteps <= 4 ? 2 : 1)
    gated_norm_backward_bf16(GatedNormBackward<bf16> op) {
  pdl_begin();
  extern __shared__ __align__(16) std::byte memory[];
  __shared__ float rstds[kRowBlock];
  __shared__ bool real[kRowBlock];
  constexpr int kPairs = (64 * kSteps + kThreads - 1) / kThreads;  // Pairs of columns per thread.
  constexpr int kTurns = kRowBlock / kWarps;
  const GatedRows rows(memory, static_cast<int>(op.y.cols / op.groups));
  const std::int64_t group = blockIdx.y;
  const std::int64_t first_row = blockIdx.x * kRowBlock;
  const std::int64_t first = group * rows.width;
  const auto start = [&](int turn) {
    const std::int64_t i = smaller(first_row + turn * kWarps + warp_index(), op.y.rows - 1);
    if (turn < kTurns) rows.start(op, turn, i, first);
    close_copies();
  };
  start(0);
  start(1);
  if (threadIdx.x < kRowBlock) {
    const std::int64_t i = first_row + threadIdx.x;
    real[threadIdx.x] = i < op.y.rows && at(op.row_document, 0, i) >= 0;
    rstds[threadIdx.x] = real[threadIdx.x] ? at(op.rstd, i, group) : 0.0f;
  }
  __syncthreads();
  float p[kPairs][2] = {};
  StoredMagnitudes magnitudes;
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
    const int i = turn * kWarps + warp_index();
    wait_for_copies<1>();
    if (!real[i]) rows.clear(turn);
    __syncwarp();
    gated_norm_row<kSteps, kFull>(op, turn, first_row + i, first, first_row + i < op.y.rows,
                                  real[i], rstds[i], rows, magnitudes);
    __syncthreads();
#pragma unroll
    for (int o = 0; o < kPairs; ++o) {
      const int k = 2 * (o * kThreads + static_cast<int>(threadIdx.x));
      if (k >= rows.width) continue;
      const float* u = rows.u + k;
      const bf16* dout = rows.dout(turn, 0) + k;
#pragma unroll
      for (int w = 0; w < kWarps; ++w, u += rows.width, dout += 3 * rows.width) {
        const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(dout);
        const float2 of_row = *reinterpret_cast<const float2*>(u);
        p[o][0] = fma(from_bits(pair << 16), of_row.x, p[o][0]);
        p[o][1] = fma(from_bits(pair & 0xffff0000u), of_row.y, p[o][1]);
      }
    }
    __syncthreads();  // The rows have been used.
    start(turn + 2);
  }
#pragma unroll
  for (int o = 0; o < kPairs; ++o) {
    const int k = 2 * (o * kThreads + static_cast<int>(threadIdx.x));
    if (k < rows.width)
      store_8(&at(op.partials, blockIdx.x, first + k), bits(p[o][0]), bits(p[o][1]));
  }
  if (op.amax.data != nullptr) raise_amax(op.amax.data, magnitudes);
}

// Other sizes and alignments take the plain kernels.
template <class Op>
bool has_wide_groups(const Op& op) {
  return op.y.cols / op.groups % kVec8 == 0 && op.y.cols / op.groups <= 1024 &&
         all_vectorizable(op.y, op.z, op.gain);
}
inline bool runs_wide(const GatedNormForward<bf16>& op) {
  return has_wide_groups(op) && is_vectorizable(op.o);
}
inline bool runs_wide(const GatedNormBackward<bf16>& op) {
  return has_wide_groups(op) && all_vectorizable(op.dout, op.dy, op.dz, op.partials);
}
inline void run_wide(CudaQueue queue, const GatedNormForward<bf16>& op) {
  with_steps<1, 4, 8>(op.y.cols / op.groups, [&]<int kSteps, bool kFull>() {
    const auto kernel = gated_norm_forward_bf16<kSteps, kFull>;
    constexpr std::size_t kMemory = GatedPair<kSteps>::kBytes;
    cuda_launch_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(kMemory)));
    const std::int64_t warps = std::int64_t{multiprocessors()} * kForwardBlocks * kWarps;
    const std::int64_t per_warp = (op.y.rows * op.groups + warps - 1) / warps;
    launch(queue, dim3(blocks_for((op.y.rows + per_warp - 1) / per_warp * op.groups, kWarps)),
           dim3(kThreads), {.shared_bytes = kMemory, .overlaps = true}, kernel, op,
           static_cast<int>(per_warp));
  });
}
inline void run_wide(CudaQueue queue, const GatedNormBackward<bf16>& op) {
  with_steps<1, 4, 8>(op.y.cols / op.groups, [&]<int kSteps, bool kFull>() {
    if constexpr (kFull && kSteps == GatedWalk::kSteps) {
      run_walk(queue, op);
    } else {
      const dim3 grid(blocks_for(op.y.rows, kRowBlock), static_cast<unsigned>(op.groups));
      const auto kernel = gated_norm_backward_bf16<kSteps, kFull>;
      const std::size_t memory = GatedRows::bytes(op.y.cols / op.groups);
      cuda_launch_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             static_cast<int>(memory)));
      launch(queue, grid, dim3(kThreads), {.shared_bytes = memory, .overlaps = true}, kernel, op);
    }
  });
  fold(queue, op.partials, op.dgain, op.total);
}

}  // namespace lockstep
