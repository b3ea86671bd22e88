#include "kernels/cuda/scan.cuh"

namespace lockstep {
namespace {

// A block per (chunk, head, 16 rows).
template <class T>
__global__ void __launch_bounds__(kThreads) scan_forward(ScanForward<T> op) {
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

}  // namespace

template <class T>
void run(CudaQueue queue, const ScanForward<T>& op) {
  clear_rows_of_no_document(queue, op.row_document, op.y);
  launch(queue, state_grid(op), dim3(kThreads), chunk_states<T, ScanForward<T>>, op);
  launch(queue, tile_grid(op, op.heads), dim3(kThreads), scan_forward<T>, op);
}
template void run(CudaQueue, const ScanForward<float>&);

}  // namespace lockstep
