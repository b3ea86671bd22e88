// The gradients dS of the chunk states in tiles: the walk of scan_tiles_states.cuh in reverse.
#pragma once

#include "kernels/cuda/mamba/scan_tiles_states.cuh"

namespace lockstep {

// The v_w of ss = R1024 over n * 64 + p of fma(dS, S, acc), by the warpgroup that walks. S is read,
// then overwritten by them.
__device__ __forceinline__ void sum_products(WalkShared& shared, const OwnState& ds,
                                             const ScanBackward<bf16>& op, std::int64_t chunk,
                                             int head) {
  float* const state = head_part(op.states, chunk, head);
  // An accumulator sums rows n, n + 16, ..: fragments of even and of odd x apart.
  float acc[2][4] = {};
#pragma unroll
  for (int x = 0; x < kTileState / 8; ++x) {
    const float4 s = lane_order(state)[x * kWarpgroup];
    acc[x % 2][0] = fma(ds.c[x][0], s.x, acc[x % 2][0]);
    acc[x % 2][1] = fma(ds.c[x][1], s.y, acc[x % 2][1]);
    acc[x % 2][2] = fma(ds.c[x][2], s.z, acc[x % 2][2]);
    acc[x % 2][3] = fma(ds.c[x][3], s.w, acc[x % 2][3]);
  }
  wait_at(2, kWarpgroup);  // The previous accumulators have been read.
#pragma unroll
  for (int x = 0; x < 2; ++x) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int n = 8 * x + 2 * lane_place() + e % 2;
      const int p = kOwnChannels * own_warp() + lane_group() + 8 * (e / 2);
      shared.products[n * kTileHead + p] = acc[x][e];
    }
  }
  wait_at(2, kWarpgroup);
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const int w = 2 * own_warp() + part;
    const float* const four = shared.products + 128 * w + 4 * lane_index();
    const float v = halving_tree(add(add(four[0], four[1]), add(four[2], four[3])));
    if (lane_index() == 0) state_sum(op, chunk, head, w) = v;
  }
}

// The grid is that of tile_states.
static __global__ void __launch_bounds__(kWalkThreads, 2)
    tile_state_gradients(ScanBackward<bf16> op) {
  pdl_begin();
  extern __shared__ __align__(1024) unsigned char walk_memory[];
  WalkShared& shared = *reinterpret_cast<WalkShared*>(walk_memory);
  walk_documents<WalkBack>(shared, op, [&](const Chunk& chunk, int head, const OwnState& ds) {
    store_rounded(shared.half[own_warp()], stored_dstate(op, chunk.index, head), ds);
    sum_products(shared, ds, op, chunk.index, head);
  });
}

}  // namespace lockstep
