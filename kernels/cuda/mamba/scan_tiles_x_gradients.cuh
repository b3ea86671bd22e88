// The input gradients of each row of a chunk in tiles: dx, with the sums g and q and those of dD.
// Blocks are those of scan_tiles_row_outputs.cuh.
#pragma once

#include "kernels/cuda/mamba/scan_tiles_row_outputs.cuh"

namespace lockstep {

__device__ __forceinline__ void give_inputs(RowShared& shared, const ScanBackward<bf16>& op,
                                            const Chunk& chunk, const BlockHeads& heads) {
  start_rows(shared.others, op.xbc, chunk, c_column(op, heads.group));
  close_copies();
  std::uint32_t b[kStateSteps][4];
  own_state_steps(b, op.xbc, chunk, b_column(op, heads.group));
  wait_for_copies<0>();
  __syncthreads();
  group_products<false>(shared.g, b, shared.others, chunk.rows);
  const int first = 16 * own_sixteen();
  const int own = first + lane_group();
  for (int head = heads.first; head < heads.last; ++head) {
    __syncthreads();  // The previous head has been used.
    start_rows(shared.head.rows, op.dy, chunk, x_column(op, head));
    start_state(shared.head.state, stored_dstate(op, chunk.index, head));
    shared.decay.start(op, chunk, head);
    close_copies();
    wait_for_copies<0>();
    __syncthreads();
    shared.decay.keep(kept_decays(op, chunk.index, head));
    if (first >= chunk.rows) continue;
    WarpSum<8> xa;  // Holds t first.
#pragma unroll
    for (int k = 0; k < kStateSteps; ++k) extend_across(xa, b[k], shared.head.state, kStep * k);
    const auto own_dy = [&](int x, int e) {
      const std::uint32_t pair =
          shared.head.rows.pair_at(own + 8 * (e / 2), 8 * x + 2 * lane_place());
      return e % 2 == 0 ? low_of(pair) : high_of(pair);
    };
    {
      const OwnChannels own_x(op.xbc, chunk, x_column(op, head));
      sum_channels(op, chunk, head, kSumQ,
                   [&](int x, int e) { return fma(own_x(x, e), xa.c[x][e], 0.0f); });
      sum_channels(op, chunk, head, kSumD,
                   [&](int x, int e) { return fma(own_dy(x, e), own_x(x, e), 0.0f); });
    }
    scale_rows(xa, shared.decay.to_end(own), shared.decay.to_end(own + 8));
    const float own_cs[2] = {shared.decay.cs[own], shared.decay.cs[own + 8]};
    for (int s = own_sixteen(); kStep * s < chunk.rows; ++s) {
      std::uint32_t m[4];
      mixing_step<false>(m, shared.g, s, shared.decay, own_cs);
      extend_across(xa, m, shared.head.rows, kStep * s);
    }
    end_chains(xa);
    const OwnChannels own_x(op.xbc, chunk, x_column(op, head));
    sum_channels(op, chunk, head, kSumG,
                 [&](int x, int e) { return fma(own_x(x, e), xa.c[x][e], 0.0f); });
    const float d = at(op.d, 0, head);
    const float dt[2] = {shared.decay.dt[own], shared.decay.dt[own + 8]};
    bf16* const to = op.dxbc.data + (chunk.start + first) * op.dxbc.pitch + x_column(op, head);
    store_rows(shared.out[warp_index()], to, op.dxbc.pitch, chunk.rows - first,
               [&](int x, int e) { return fma(d, own_dy(x, e), mul(xa.c[x][e], dt[e / 2])); });
  }
}

}  // namespace lockstep
