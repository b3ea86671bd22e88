#include "kernels/cuda/reduce.cuh"
#include "kernels/embedding.h"

namespace lockstep {
namespace {

template <class Op>
__device__ float dropped(const Op& op, std::int64_t row, std::int64_t channel, float x) {
  return drop(op.dropout, op.state.data[0], static_cast<std::uint32_t>(at(op.row_number, 0, row)),
              static_cast<std::uint32_t>(at(op.row_position, 0, row)), static_cast<std::uint32_t>(channel), x);
}

template <class T>
__global__ void embedding_forward(EmbeddingForward<T> op) {
  const Element e = own_element(op.y.rows, op.y.cols);
  if (!e.inside) return;
  T y = st<T>(0.0f);
  if (at(op.row_document, 0, e.row) >= 0) {
    const float x = load(at(op.weight, at(op.tokens, 0, e.row), e.col));
    y = st<T>(dropped(op, e.row, e.col, x));
  }
  at(op.y, e.row, e.col) = y;
}

// A block per vocabulary row: it looks for the row's token 256 places at a time and adds what it finds in row order.
// Thread t owns columns t, t + 256, ..; their sums grow in place, in memory that no other thread touches.
template <class T>
__global__ void embedding_backward(EmbeddingBackward<T> op) {
  __shared__ unsigned found[kWarps];
  const std::int64_t v = blockIdx.x;
  const std::int64_t width = op.dweight.cols;
  const std::int64_t rows = op.dy.rows;
  for (std::int64_t k = threadIdx.x; k < width; k += kThreads) at(op.dweight, v, k) = 0.0f;
  for (std::int64_t first = 0; first < rows; first += kThreads) {
    const std::int64_t i = first + threadIdx.x;
    const bool mine = i < rows && at(op.row_document, 0, i) >= 0 && at(op.tokens, 0, i) == v;
    const unsigned lanes = __ballot_sync(kAllLanes, mine);
    if (!__syncthreads_or(mine)) continue;
    if (lane_index() == 0) found[warp_index()] = lanes;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) {
      for (int bit = 0; bit < kWarp; ++bit) {
        if (!(found[w] >> bit & 1u)) continue;
        const std::int64_t row = first + w * kWarp + bit;
        for (std::int64_t k = threadIdx.x; k < width; k += kThreads) {
          float& sum = at(op.dweight, v, k);
          sum = add(sum, dropped(op, row, k, load(at(op.dy, row, k))));
        }
      }
    }
    __syncthreads();  // `found` may be overwritten.
  }
  for (std::int64_t k = threadIdx.x; k < width; k += kThreads) at(op.dweight, v, k) = add(at(op.dweight, v, k), 0.0f);
}

}  // namespace

template <class T>
void run(CudaQueue queue, const EmbeddingForward<T>& op) {
  launch_elements(queue, op.y.rows, op.y.cols, embedding_forward<T>, op);
}
template <class T>
void run(CudaQueue queue, const EmbeddingBackward<T>& op) {
  launch(queue, dim3(static_cast<unsigned>(op.dweight.rows)), dim3(kThreads), embedding_backward<T>, op);
}
template void run(CudaQueue, const EmbeddingForward<float>&);
template void run(CudaQueue, const EmbeddingForward<bf16>&);
template void run(CudaQueue, const EmbeddingBackward<float>&);
template void run(CudaQueue, const EmbeddingBackward<bf16>&);

}  // namespace lockstep
