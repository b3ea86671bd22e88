#include "kernels/cuda/common/raise_amax.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/moe/dispatch.h"

namespace lockstep {
namespace {

__device__ std::int32_t kept(const ExpertLayout& op, std::int64_t e) {
  const std::int32_t chosen = at(op.counts, 0, e);
  return op.capacity > 0 && chosen > op.capacity ? op.capacity : chosen;
}

// Marks all pairs and rows as unassigned.
__global__ void clear_layout(ExpertLayout op) {
  pdl_begin();
  const std::int64_t x = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (x < op.row_pair.cols) at(op.row_pair, 0, x) = -1;
  if (x < op.pair_row.rows * op.pair_row.cols)
    at(op.pair_row, x / op.pair_row.cols, x % op.pair_row.cols) = -1;
}

// One block per expert walks all pairs in order of priority, 256 at a time.
__global__ void expert_layout(ExpertLayout op) {
  pdl_begin();
  __shared__ int found[kWarps];
  const std::int64_t own = blockIdx.x;
  const std::int64_t slots = op.experts.cols, pairs = op.experts.rows * slots;
  const std::int32_t rows = kept(op, own);
  std::int32_t start = 0;
  if (op.padded) {
    start = static_cast<std::int32_t>(own) * op.capacity;
  } else {
    for (std::int64_t e = 0; e < own; ++e) start += kept(op, e);
  }
  if (threadIdx.x == 0) {
    at(op.start, 0, own) = start;
    at(op.rows, 0, own) = rows;
  }
  std::int32_t rank = 0;  // Rank of the first pair in this round.
  for (std::int64_t first = 0; first < pairs && rank < rows; first += kThreads) {
    const std::int64_t p = first + threadIdx.x;
    const bool mine =
        p < pairs && at(op.experts, p / slots, p % slots) == static_cast<std::int32_t>(own);
    const unsigned lanes = __ballot_sync(kAllLanes, mine);
    __syncthreads();  // The previous round's counts have been read.
    if (lane_index() == 0) found[warp_index()] = __popc(lanes);
    __syncthreads();
    std::int32_t own_rank = rank + __popc(lanes & ((1u << lane_index()) - 1u));
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp_index()) own_rank += found[w];
      rank += found[w];
    }
    if (mine && own_rank < rows) {
      at(op.pair_row, p / slots, p % slots) = start + own_rank;
      at(op.row_pair, 0, start + own_rank) = static_cast<std::int32_t>(p);
    }
  }
}

template <class Op, class T>
__device__ __forceinline__ void raise_amax_of_element(const Op& op, std::int64_t row, T stored) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (op.amax.data == nullptr) return;
    StoredMagnitudes one;
    one.take(stored.bits);
    raise_amax_of_row(op, row, one);
  }
}

template <class T>
__global__ void dispatch(Dispatch<T> op) {
  pdl_begin();
  const Element e = own_element(op.buffer.rows, op.buffer.cols);
  if (!e.inside) return;
  const std::int32_t pair = at(op.row_pair, 0, e.row);
  const T x = pair < 0 ? st<T>(0.0f) : at(op.x, pair / op.top_k, e.col);
  at(op.buffer, e.row, e.col) = x;
  raise_amax_of_element(op, e.row, x);
}

template <class T>
__global__ void combine(Combine<T> op) {
  pdl_begin();
  const Element e = own_element(op.out.rows, op.out.cols);
  if (!e.inside) return;
  float sum = 0.0f;
  if (at(op.row_document, 0, e.row) >= 0) {
    for (std::int64_t s = 0; s < op.weights.cols; ++s) {
      const std::int32_t r = at(op.pair_row, e.row, s);
      if (r >= 0) sum = fma(at(op.weights, e.row, s), load(at(op.y, r, e.col)), sum);
    }
    sum = add(sum, 0.0f);
    if (op.shared.data != nullptr) sum = add(sum, load(at(op.shared, e.row, e.col)));
  }
  at(op.out, e.row, e.col) = st<T>(sum);
}

template <class T>
__global__ void combine_backward(CombineBackward<T> op) {
  pdl_begin();
  const Element e = own_element(op.dy.rows, op.dy.cols);
  if (!e.inside) return;
  const std::int32_t pair = at(op.row_pair, 0, e.row);
  const std::int64_t slots = op.weights.cols;
  T dy = st<T>(0.0f);
  if (pair >= 0) {
    const std::int64_t i = pair / slots;
    dy = st<T>(mul(at(op.weights, i, pair % slots), load(at(op.dout, i, e.col))));
  }
  at(op.dy, e.row, e.col) = dy;
  raise_amax_of_element(op, e.row, dy);
}
// One warp per pair.
template <class T>
__global__ void combine_weight_gradient(CombineBackward<T> op) {
  pdl_begin();
  const std::int64_t slots = op.weights.cols, p = warp_item();
  if (p >= op.weights.rows * slots) return;
  const std::int64_t i = p / slots;
  const std::int32_t r = at(op.row_document, 0, i) < 0 ? -1 : at(op.pair_row, i, p % slots);
  float dweight = 0.0f;
  if (r >= 0) {
    dweight = r128(op.dout.cols, [&](std::int64_t e, float acc) {
      return fma(load(at(op.dout, i, e)), load(at(op.y, r, e)), acc);
    });
  }
  if (lane_index() == 0) at(op.dweights, i, p % slots) = dweight;
}

template <class T>
__global__ void dispatch_backward(DispatchBackward<T> op) {
  pdl_begin();
  const Element e = own_element(op.dx.rows, op.dx.cols);
  if (!e.inside) return;
  float sum = 0.0f;
  if (at(op.row_document, 0, e.row) >= 0) {
    for (std::int64_t s = 0; s < op.pair_row.cols; ++s) {
      const std::int32_t r = at(op.pair_row, e.row, s);
      if (r >= 0) sum = add(sum, load(at(op.dbuffer, r, e.col)));
    }
    if (op.dshared.data != nullptr) sum = add(sum, load(at(op.dshared, e.row, e.col)));
    float router = 0.0f;
    for (std::int64_t x = 0; x < op.wr.rows; ++x)
      router = fma(at(op.dlogits, e.row, x), at(op.wr, x, e.col), router);
    sum = add(sum, add(router, 0.0f));
  }
  at(op.dx, e.row, e.col) = st<T>(add(sum, 0.0f));
}

}  // namespace

void run(CudaQueue queue, const ExpertLayout& op) {
  const std::int64_t pairs = op.pair_row.rows * op.pair_row.cols;
  const std::int64_t places = pairs > op.row_pair.cols ? pairs : op.row_pair.cols;
  launch(queue, dim3(blocks_for(places, kThreads)), dim3(kThreads), kPdl, clear_layout, op);
  launch(queue, dim3(static_cast<unsigned>(op.counts.cols)), dim3(kThreads), kPdl, expert_layout,
         op);
}
template <class T>
void run(CudaQueue queue, const Dispatch<T>& op) {
  launch_elements(queue, op.buffer.rows, op.buffer.cols, dispatch<T>, op);
}
template <class T>
void run(CudaQueue queue, const Combine<T>& op) {
  launch_elements(queue, op.out.rows, op.out.cols, combine<T>, op);
}
template <class T>
void run(CudaQueue queue, const CombineBackward<T>& op) {
  launch_elements(queue, op.dy.rows, op.dy.cols, combine_backward<T>, op);
  launch(queue, dim3(blocks_for(op.weights.rows * op.weights.cols, kWarps)), dim3(kThreads), kPdl,
         combine_weight_gradient<T>, op);
}
template <class T>
void run(CudaQueue queue, const DispatchBackward<T>& op) {
  launch_elements(queue, op.dx.rows, op.dx.cols, dispatch_backward<T>, op);
}
template void run(CudaQueue, const Dispatch<float>&);
template void run(CudaQueue, const Dispatch<bf16>&);
template void run(CudaQueue, const Combine<float>&);
template void run(CudaQueue, const Combine<bf16>&);
template void run(CudaQueue, const CombineBackward<float>&);
template void run(CudaQueue, const CombineBackward<bf16>&);
template void run(CudaQueue, const DispatchBackward<float>&);
template void run(CudaQueue, const DispatchBackward<bf16>&);

}  // namespace lockstep
