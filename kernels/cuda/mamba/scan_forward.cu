#include "kernels/cuda/mamba/scan_bf16.cuh"
#include "kernels/cuda/mamba/scan_tiles_chunk_states.cuh"
#include "kernels/cuda/mamba/scan_tiles_outputs.cuh"

namespace lockstep {
namespace {

// A block per (chunk, head, 16 rows).
template <class T>
__global__ void __launch_bounds__(kThreads) scan_forward(ScanForward<T> op) {
  pdl_begin();
  __shared__ Decay decay;
  __shared__ float m[kRowTile][kChunk];
  const Chunk chunk = chunk_at(op, blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.z) * kRowTile;
  if (first >= chunk.rows) return;
  const int rows = static_cast<int>(smaller(kRowTile, chunk.rows - first));
  const int width = head_rows(op);
  fill(decay, op, chunk, head);
  fill_rows<T>(m, op, chunk, head, first, rows, decay);
  __syncthreads();
  const float d = at(op.d, 0, head);
  for (int out = static_cast<int>(threadIdx.x); out < rows * width; out += kThreads) {
    const int i = out / width;
    const int p = out % width;
    const float x = load(at(op.xbc, chunk.start + first + i, x_column(op, head) + p));
    const float y = fma(d, x, scan_row<T>(op, chunk, head, first + i, p, m[i], decay));
    at(op.y, chunk.start + first + i, x_column(op, head) + p) = st<T>(y);
  }
}

// A block per (chunk, head, 64 rows).
__global__ void __launch_bounds__(kThreads, 1) scan_forward_bf16(ScanForward<bf16> op) {
  pdl_begin();
  __shared__ Decay decay;
  __shared__ ScanStage shared;
  const ScanTile tile = scan_tile(op);
  if (tile.rows <= 0) return;
  fill(decay, op, tile.chunk, tile.head);
  TileSum y[kHeadTiles];
  scan_rows(y, shared, op, tile, decay);
  const float d = at(op.d, 0, tile.head);
  each_channel(y, tile, [&](int i, int p, float value) {
    const std::int64_t row = tile.chunk.start + tile.first + i;
    const std::int64_t column = x_column(op, tile.head) + p;
    at(op.y, row, column) = st<bf16>(fma(d, load(at(op.xbc, row, column)), add(value, 0.0f)));
  });
}

void run_in_tiles(CudaQueue queue, const ScanForward<bf16>& op) {
  using Op = ScanForward<bf16>;
  const unsigned chunks = chunks_in_grid(op);
  const auto heads = static_cast<unsigned>(op.heads);
  if (grows_at_once(op)) {
    launch_tiles<GrowthShared>(queue, dim3(chunks, heads), kDecayThreads, tile_growths<Op>, op);
    launch(queue, walk_grid(op), dim3(kThreads), kPdl, tile_grown_states, op);
  } else {
    launch(queue, dim3(chunks, blocks_for(op.heads, kDecayHeads)), dim3(kThreads), kPdl,
           tile_decays<Op>, op);
    launch_tiles<WalkShared>(queue, walk_grid(op), kWalkThreads, tile_states<Op>, op);
  }
  launch_outputs(queue, op);
}

}  // namespace

template <class T>
void run(CudaQueue queue, const ScanForward<T>& op) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (runs_in_tiles(op)) return run_in_tiles(queue, op);
  }
  clear_rows_of_no_document(queue, op.row_document, op.y);
  if constexpr (std::is_same_v<T, bf16>) {
    launch(queue, state_tile_grid(op), dim3(kThreads), kPdl, chunk_states_bf16<ScanForward<bf16>>,
           op);
    launch(queue, tile_grid(op, op.heads, kSide), dim3(kThreads), kPdl, scan_forward_bf16, op);
  } else {
    launch(queue, state_grid(op), dim3(kThreads), kPdl, chunk_states<T, ScanForward<T>>, op);
    launch(queue, tile_grid(op, op.heads), dim3(kThreads), kPdl, scan_forward<T>, op);
  }
}
template void run(CudaQueue, const ScanForward<float>&);
template void run(CudaQueue, const ScanForward<bf16>&);

}  // namespace lockstep
