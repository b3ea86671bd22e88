#include "kernels/cross_entropy.h"
#include "kernels/cuda/reduce.cuh"

namespace lockstep {
namespace {

__device__ float block_max(float m) {
  __shared__ float of_warp[kWarps];
  const float warp = warp_max(m);
  if (lane_index() == 0) of_warp[warp_index()] = warp;
  __syncthreads();
  float result = of_warp[0];
  for (int w = 1; w < kWarps; ++w) result = max(result, of_warp[w]);
  return add(result, 0.0f);
}

// A block per row.
template <class T>
__global__ void __launch_bounds__(kThreads) cross_entropy_forward(CrossEntropyForward<T> op) {
  const std::int64_t i = blockIdx.x;
  const std::int32_t target = at(op.targets, 0, i);
  float m = 0.0f;
  float s = 0.0f;
  float loss = 0.0f;
  if (target >= 0) {
    float own = neg(infinity());
    for (std::int64_t v = threadIdx.x; v < op.logits.cols; v += kThreads) own = max(own, load(at(op.logits, i, v)));
    m = block_max(own);
    s = r1024(op.logits.cols,
              [&](std::int64_t v, float acc) { return add(acc, expn(sub(load(at(op.logits, i, v)), m))); });
    loss = sub(add(m, log(s)), load(at(op.logits, i, target)));
  }
  if (threadIdx.x != 0) return;
  at(op.loss, 0, i) = loss;
  at(op.maximum, 0, i) = m;
  at(op.sum, 0, i) = s;
}

template <class T>
__global__ void cross_entropy_backward(CrossEntropyBackward<T> op) {
  const Element e = own_element(op.dlogits.rows, op.dlogits.cols);
  if (!e.inside) return;
  const std::int32_t target = at(op.targets, 0, e.row);
  float dlogit = 0.0f;
  if (target >= 0) {
    const float inverse = div(1.0f, at(op.sum, 0, e.row));
    const float p = mul(expn(sub(load(at(op.logits, e.row, e.col)), at(op.maximum, 0, e.row))), inverse);
    dlogit = mul(sub(p, e.col == target ? 1.0f : 0.0f), op.state.data[0].inverse_targets);
  }
  at(op.dlogits, e.row, e.col) = st<T>(dlogit);
}

// One block; CS of a single column.
__global__ void microbatch_loss(MicrobatchLoss op) {
  const float sum =
      column_sum(op.loss.cols, lane_index() == 0, [&](std::int64_t i, float p) { return add(p, at(op.loss, 0, i)); });
  if (threadIdx.x == 0) op.total.data[0] = mul(sum, op.state.data[0].inverse_targets);
}

}  // namespace

template <class T>
void run(CudaQueue queue, const CrossEntropyForward<T>& op) {
  launch(queue, dim3(static_cast<unsigned>(op.logits.rows)), dim3(kThreads), cross_entropy_forward<T>, op);
}
template <class T>
void run(CudaQueue queue, const CrossEntropyBackward<T>& op) {
  launch_elements(queue, op.dlogits.rows, op.dlogits.cols, cross_entropy_backward<T>, op);
}
void run(CudaQueue queue, const MicrobatchLoss& op) { launch(queue, dim3(1), dim3(kThreads), microbatch_loss, op); }
template void run(CudaQueue, const CrossEntropyForward<float>&);
template void run(CudaQueue, const CrossEntropyForward<bf16>&);
template void run(CudaQueue, const CrossEntropyBackward<float>&);
template void run(CudaQueue, const CrossEntropyBackward<bf16>&);

}  // namespace lockstep
