// The gradients dS of the chunk states in tiles: the walk of scan_tiles_states.cuh in reverse.
#pragma once

#include "kernels/cuda/mamba/scan_tiles_states.cuh"

namespace lockstep {

// The v_w of ss = R1024 over n * 64 + p of fma(dS, S, acc). S is read, then overwritten by them.
__device__ __forceinline__ void sum_products(WalkShared& shared, const OwnState& ds,
                                             const ScanBackward<bf16>& op, std::int64_t chunk,
                                             int head) {
  float* const state = head_part(op.states, chunk, head);
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    float acc[4] = {};
#pragma unroll
    for (int m = 0; m < kOwnStateTiles; ++m) {
      const float4 s = lane_order(state)[(2 * m + x) * kWalkThreads];
      acc[0] = fma(ds.c[m][x][0], s.x, acc[0]);
      acc[1] = fma(ds.c[m][x][1], s.y, acc[1]);
      acc[2] = fma(ds.c[m][x][2], s.z, acc[2]);
      acc[3] = fma(ds.c[m][x][3], s.w, acc[3]);
    }
    const int p = 16 * warp_index() + 8 * x + 2 * lane_place();
#pragma unroll
    for (int e = 0; e < 4; ++e)
      shared.products[(lane_group() + 8 * (e / 2)) * kTileHead + p + e % 2] = acc[e];
  }
  __syncthreads();
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const int w = 2 * warp_index() + part;
    const float* const acc = shared.products + 128 * w + 4 * lane_index();
    const float v = halving_tree(add(add(acc[0], acc[1]), add(acc[2], acc[3])));
    if (lane_index() == 0) state_sum(op, chunk, head, w) = v;
  }
}

// The grid is that of tile_states.
static __global__ void __launch_bounds__(kWalkThreads, 2)
    tile_state_gradients(ScanBackward<bf16> op) {
  pdl_begin();
  extern __shared__ __align__(16) std::byte memory[];
  WalkShared& shared = *reinterpret_cast<WalkShared*>(memory);
  each_document(op, [&](const ChunkedDocument& document, int head) {
    OwnState ds;
    walk(
        shared, ds, document, document.chunks - 1, 0, -1,
        [&](WalkStage& stage, const Chunk& chunk) {
          start_rows(stage.left, op.xbc, chunk, c_column(op, group_of(op, head)));
          start_rows(stage.right, op.dy, chunk, x_column(op, head));
          stage.decay.start(op, chunk, head);
        },
        [&](const Chunk& chunk) {
          ds.store_rounded(stored_dstate(op, chunk.index, head));
          sum_products(shared, ds, op, chunk.index, head);
        },
        [](const TileDecay& decay, int i) { return expn(decay.cs[i]); });
  });
}

}  // namespace lockstep
