// The backward scan in tiles.
#pragma once

#include "kernels/cuda/common/beside.h"
#include "kernels/cuda/mamba/scan_tiles_chunk_states.cuh"
#include "kernels/cuda/mamba/scan_tiles_dt_gradients.cuh"
#include "kernels/cuda/mamba/scan_tiles_input_gradients.cuh"
#include "kernels/cuda/mamba/scan_tiles_output_gradients.cuh"
#include "kernels/cuda/mamba/scan_tiles_state_gradients.cuh"

namespace lockstep {

// Computes d(dt) from the sums of each row. Grid: (chunk, set of eight heads).
static __global__ void __launch_bounds__(kThreads, 5) tile_rates(ScanBackward<bf16> op) {
  pdl_begin();
  __shared__ RateShared shared;
  each_chunk(op, [&](const Chunk& chunk) {
    give_rates(shared, op, chunk, static_cast<int>(blockIdx.y) * kRateHeads);
  });
}

inline void run_in_tiles(CudaQueue queue, const ScanBackward<bf16>& op) {
  using Op = ScanBackward<bf16>;
  const unsigned chunks = chunks_in_grid(op);
  const auto heads = static_cast<unsigned>(op.heads);
  if (grows_at_once(op)) {
    launch_tiles<GrowthShared>(queue, dim3(chunks, heads, 2), kDecayThreads, tile_growths<Op>, op);
    launch(queue, walk_grid(op), dim3(kThreads), kPdl, tile_grown_gradients, op);
  } else {
    launch(queue, dim3(chunks, blocks_for(op.heads, kDecayHeads)), dim3(kThreads), kPdl,
           tile_decays<Op>, op);
    launch_tiles<WalkShared>(queue, walk_grid(op), kWalkThreads, tile_states<Op>, op);
    launch_tiles<WalkShared>(queue, walk_grid(op), kWalkThreads, tile_state_gradients, op);
  }
  launch_tiles<OutputGradientsShared>(queue, group_grid(op), kGradientThreads,
                                      tile_output_gradients, op);
  launch_tiles<InputGradientsShared>(queue, group_grid(op), kGradientThreads, tile_input_gradients,
                                     op);
  launch_beside(
      [&] {
        launch(queue, dim3(chunks, blocks_for(op.heads, kRateHeads)), dim3(kThreads), kPdl,
               tile_rates, op);
      },
      op.dt, op.dt_bias, op.a_log, op.cu_seqlens, op.cu_seqlens_padded, op.row_document,
      op.chunk_document, op.chunk_start, op.chunk_rows, op.states, op.dstates, op.rows, op.ddt,
      op.amax);
  launch_beside(
      [&] {
        launch(queue, dim3(blocks_for(op.row_document.cols, kRowBlock)), dim3(kThreads), kPdl,
               tile_partial_sums, op);
      },
      op.rows, op.row_document, op.dstates);
  launch_beside(
      [&] {
        launch(queue, dim3(blocks_for(3ll * op.heads, kWarp)), dim3(kThreads), kPdl,
               tile_parameter_sums, op);
      },
      op.dstates, op.ddt_bias, op.da_log, op.dd, op.dt_bias_total, op.a_log_total, op.d_total);
}

}  // namespace lockstep
