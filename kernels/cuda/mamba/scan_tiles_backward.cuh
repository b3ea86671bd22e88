// The two large kernels of the backward scan in tiles. Each combines several kinds of independent
// blocks, so that all multiprocessors have work until its end.
#pragma once

#include "kernels/cuda/mamba/scan_tiles_bc_gradients.cuh"
#include "kernels/cuda/mamba/scan_tiles_chunk_states.cuh"
#include "kernels/cuda/mamba/scan_tiles_dt_gradients.cuh"
#include "kernels/cuda/mamba/scan_tiles_state_gradients.cuh"
#include "kernels/cuda/mamba/scan_tiles_x_gradients.cuh"

namespace lockstep {

union RowsShared {
  RowShared rows;
  GroupOutputsShared group;
};
// Computes what needs S and dS: dC, dx and the sums over channels, the longest first. Grid: (chunk,
// group, kind and part).
static __global__ void __launch_bounds__(kThreads, 2) tile_rows(ScanBackward<bf16> op) {
  pdl_begin();
  extern __shared__ __align__(16) std::byte memory[];
  RowsShared& shared = *reinterpret_cast<RowsShared*>(memory);
  each_chunk(op, [&](const Chunk& chunk) {
    const int group = static_cast<int>(blockIdx.y);
    const int parts = head_parts(op);
    const int part = static_cast<int>(blockIdx.z) - 1;
    if (part < 0) {
      give_group_outputs(shared.group, op, chunk, group);
    } else if (part < parts) {
      give_inputs(shared.rows, op, chunk, block_heads(op, group, part));
    } else {
      give_outputs(shared.rows, op, chunk, block_heads(op, group, part - parts));
    }
  });
}

union EndsShared {
  GroupInputsShared group;
  RateShared rates;
};
// Computes what needs the results of tile_rows: dB and d(dt). Grid: (chunk, groups and then sets of
// eight heads).
static __global__ void __launch_bounds__(kThreads, 2) tile_ends(ScanBackward<bf16> op) {
  pdl_begin();
  extern __shared__ __align__(16) std::byte memory[];
  EndsShared& shared = *reinterpret_cast<EndsShared*>(memory);
  each_chunk(op, [&](const Chunk& chunk) {
    const int part = static_cast<int>(blockIdx.y);
    if (part < op.groups) {
      give_group_inputs(shared.group, op, chunk, part);
    } else {
      give_rates(shared.rates, op, chunk, (part - op.groups) * kRateHeads);
    }
  });
}

inline void run_in_tiles(CudaQueue queue, const ScanBackward<bf16>& op) {
  using Op = ScanBackward<bf16>;
  const unsigned chunks = chunks_in_grid(op);
  const auto heads = static_cast<unsigned>(op.heads);
  const auto groups = static_cast<unsigned>(op.groups);
  const auto parts = static_cast<unsigned>(head_parts(op));
  if (grows_at_once(op)) {
    launch_tiles<GrowthShared>(queue, dim3(chunks, heads, 2), kDecayThreads, tile_growths<Op>, op);
    launch(queue, walk_grid(op), dim3(kThreads), kPdl, tile_grown_gradients, op);
  } else {
    launch(queue, dim3(chunks, heads), dim3(kDecayThreads), kPdl, tile_decays<Op>, op);
    launch_tiles<WalkShared>(queue, walk_grid(op), kWalkThreads, tile_states<Op>, op);
    launch_tiles<WalkShared>(queue, walk_grid(op), kWalkThreads, tile_state_gradients, op);
  }
  launch_tiles<RowsShared>(queue, dim3(chunks, groups, 1 + 2 * parts), kThreads, tile_rows, op);
  launch_tiles<EndsShared>(queue, dim3(chunks, groups + blocks_for(op.heads, kRateHeads)), kThreads,
                           tile_ends, op);
  launch(queue, dim3(blocks_for(op.row_document.cols, kRowBlock)), dim3(kThreads), kPdl,
         tile_partial_sums, op);
  launch(queue, dim3(blocks_for(3ll * op.heads, kWarp)), dim3(kWarp), kPdl, tile_parameter_sums,
         op);
}

}  // namespace lockstep
