#include "kernels/cuda/common/reduce.cuh"
#include "kernels/moe/router.h"

namespace lockstep {
namespace {

// Called by a whole warp. Returns lse = m + log(s), and calls smx(e, smx_e) for each of a lane's
// experts.
template <class Smx>
__device__ float softmax_row(std::int64_t experts, const float* logits, Smx smx) {
  float m = logits[0];
  for (std::int64_t e = lane_index(); e < experts; e += kWarp) m = max(m, logits[e]);
  m = add(warp_max(m), 0.0f);
  const float s =
      r128(experts, [&](std::int64_t e, float acc) { return add(acc, expn(sub(logits[e], m))); });
  const float inv = div(1.0f, s);
  for (std::int64_t e = lane_index(); e < experts; e += kWarp)
    smx(e, mul(expn(sub(logits[e], m)), inv));
  return add(m, log(s));
}

__device__ float inverse_sum(std::int64_t slots, const float* scores,
                             const std::int32_t* selected) {
  float sum = 0.0f;
  for (std::int64_t s = 0; s < slots; ++s) sum = add(sum, scores[selected[s]]);
  return div(1.0f, add(sum, 0.0f));
}

// A key and its expert. The larger key wins, among equals the lower index.
struct Candidate {
  float key;
  int expert;
  __device__ bool beats(const Candidate& other) const {
    if (expert < 0 || other.expert < 0) return expert >= 0;
    return key > other.key || (!(other.key > key) && expert < other.expert);
  }
};
__device__ Candidate best_of_warp(Candidate own) {
#pragma unroll
  for (int off = kWarp / 2; off > 0; off /= 2) {
    const Candidate other{__shfl_xor_sync(kAllLanes, own.key, off),
                          __shfl_xor_sync(kAllLanes, own.expert, off)};
    if (other.beats(own)) own = other;
  }
  return own;
}

template <class T>
__device__ float key_of(const RouterForward<T>& op, std::int64_t i, std::int64_t e) {
  const float p = at(op.scores, i, e);
  return op.bias.data != nullptr ? add(p, at(op.bias, 0, e)) : p;
}

// Selects k times the unused expert with the largest key. Bit b of `used` is expert 32 b + lane.
template <class T>
__device__ void select(const RouterForward<T>& op, std::int64_t i) {
  unsigned used = 0;
  for (std::int64_t s = 0; s < op.experts.cols; ++s) {
    Candidate best{0.0f, -1};
    for (std::int64_t e = lane_index(); e < op.wr.rows; e += kWarp) {
      const Candidate mine{key_of(op, i, e), static_cast<int>(e)};
      if (!(used >> (e / kWarp) & 1u) && mine.beats(best)) best = mine;
    }
    best = best_of_warp(best);
    if (best.expert % kWarp == lane_index()) used |= 1u << (best.expert / kWarp);
    if (lane_index() == 0) at(op.experts, i, s) = best.expert;
  }
}

// One warp per row. __syncwarp orders what lanes write for each other.
template <class T>
__global__ void router_forward(RouterForward<T> op) {
  pdl_begin();
  const std::int64_t i = warp_item();
  if (i >= op.x.rows) return;
  const std::int64_t experts = op.wr.rows, slots = op.experts.cols;
  const bool real = at(op.row_document, 0, i) >= 0;
  for (std::int64_t e = lane_index(); e < experts; e += kWarp) {
    at(op.logits, i, e) =
        real ? chain32(&at(op.x, i, 0), &at(op.wr, e, 0), static_cast<int>(op.x.cols)) : 0.0f;
    at(op.scores, i, e) = 0.0f;
  }
  if (!real) {
    for (std::int64_t s = lane_index(); s < slots; s += kWarp) {
      at(op.experts, i, s) = -1;
      at(op.weights, i, s) = 0.0f;
    }
    if (lane_index() == 0) at(op.lse, 0, i) = 0.0f;
    return;
  }
  __syncwarp();
  const float* logits = &at(op.logits, i, 0);
  const float lse = softmax_row(experts, logits, [&](std::int64_t e, float smx) {
    at(op.scores, i, e) = op.kind == RouterScore::softmax ? smx : sigmoid(logits[e]);
  });
  if (lane_index() == 0) at(op.lse, 0, i) = lse;
  __syncwarp();
  select(op, i);
  __syncwarp();
  const float* scores = &at(op.scores, i, 0);
  const std::int32_t* selected = &at(op.experts, i, 0);
  const float inv = op.combine.renormalise ? inverse_sum(slots, scores, selected) : 1.0f;
  for (std::int64_t s = lane_index(); s < slots; s += kWarp) {
    const float p = scores[selected[s]];
    at(op.weights, i, s) = mul(op.combine.renormalise ? mul(p, inv) : p, op.combine.scaling);
  }
}

// One block per expert. Sums of integers need no order.
__global__ void expert_counts(ExpertCounts op) {
  pdl_begin();
  __shared__ int part[kWarps];
  const std::int64_t pairs = op.experts.rows * op.experts.cols;
  int count = 0;
  for (std::int64_t p = threadIdx.x; p < pairs; p += kThreads) {
    count += at(op.experts, p / op.experts.cols, p % op.experts.cols) ==
             static_cast<std::int32_t>(blockIdx.x);
  }
  count = __reduce_add_sync(kAllLanes, count);
  if (lane_index() == 0) part[warp_index()] = count;
  __syncthreads();
  if (threadIdx.x != 0) return;
  int sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += part[w];
  at(op.counts, 0, blockIdx.x) = sum;
}

// Column E is the sum of the squares of lse.
__global__ void router_loss_sums(RouterLoss op) {
  pdl_begin();
  const std::int64_t e = own_column();
  const std::int64_t experts = op.scores.cols;
  const bool inside = e <= experts;
  const float sum = column_sum(op.scores.rows, inside, [&](std::int64_t i, float p) {
    if (at(op.row_document, 0, i) < 0) return p;
    const float lse = at(op.lse, 0, i);
    return e < experts ? add(p, at(op.scores, i, e)) : fma(lse, lse, p);
  });
  if (inside && warp_index() == 0) at(op.sums, 0, e) = sum;
}
__global__ void router_loss(RouterLoss op) {
  pdl_begin();
  const std::int64_t experts = op.scores.cols;
  const float inverse_microbatches = op.state.data[0].inverse_microbatches;
  std::int64_t pairs = 0;
  for (std::int64_t e = 0; e < experts; ++e) pairs += at(op.counts, 0, e);
  const std::int64_t rows = pairs / op.top_k;
  float value = 0.0f;
  for (std::int64_t e = 0; e < experts; ++e) {
    const float a =
        balance_slope(at(op.counts, 0, e), rows, experts, op.top_k, op.aux, inverse_microbatches);
    at(op.slopes, 0, e) = a;
    value = fma(a, at(op.sums, 0, e), value);
  }
  const float cz = z_slope(rows, op.z, inverse_microbatches);
  at(op.slopes, 0, experts) = cz;
  // A loss that is off is +0 even where the sum that it would scale is infinite.
  at(op.losses, 0, 0) = op.aux == 0.0f ? 0.0f : add(value, 0.0f);
  at(op.losses, 0, 1) = op.z == 0.0f ? 0.0f : mul(cz, at(op.sums, 0, experts));
}

// dp_e: the gradient through the combine weights, then that of the balance loss.
struct ScoreGradient {
  const RouterBackward& op;
  std::int64_t i;
  float inv = 1.0f;
  float t = 0.0f;

  __device__ ScoreGradient(const RouterBackward& backward, std::int64_t row)
      : op(backward), i(row) {
    if (!op.combine.renormalise) return;
    const float* scores = &at(op.scores, i, 0);
    const std::int32_t* selected = &at(op.experts, i, 0);
    inv = inverse_sum(op.experts.cols, scores, selected);
    for (std::int64_t s = 0; s < op.experts.cols; ++s) {
      t = fma(at(op.dweights, i, s), mul(scores[selected[s]], inv), t);
    }
    t = add(t, 0.0f);
  }
  __device__ float operator()(std::int64_t e) const {
    const float sc = op.combine.scaling;
    float dp = 0.0f;
    for (std::int64_t s = 0; s < op.experts.cols; ++s) {
      if (at(op.experts, i, s) != e) continue;
      const float dweight = at(op.dweights, i, s);
      dp = op.combine.renormalise ? mul(mul(sc, inv), sub(dweight, t)) : mul(sc, dweight);
    }
    return op.aux ? add(dp, at(op.slopes, 0, e)) : dp;
  }
};

// One warp per row.
__global__ void router_backward(RouterBackward op) {
  pdl_begin();
  const std::int64_t i = warp_item();
  if (i >= op.logits.rows) return;
  const std::int64_t experts = op.logits.cols;
  if (at(op.row_document, 0, i) < 0) {
    for (std::int64_t e = lane_index(); e < experts; e += kWarp) at(op.dlogits, i, e) = 0.0f;
    return;
  }
  const float* p = &at(op.scores, i, 0);
  const ScoreGradient dp(op, i);
  float t = 0.0f;
  if (op.kind == RouterScore::softmax) {
    t = r128(experts, [&](std::int64_t e, float acc) { return fma(dp(e), p[e], acc); });
  }
  for (std::int64_t e = lane_index(); e < experts; e += kWarp) {
    at(op.dlogits, i, e) = op.kind == RouterScore::softmax ? mul(p[e], sub(dp(e), t))
                                                           : mul(dp(e), mul(p[e], sub(1.0f, p[e])));
  }
  if (!op.z) return;
  const float slope = mul(mul(2.0f, at(op.slopes, 0, experts)), at(op.lse, 0, i));
  softmax_row(experts, &at(op.logits, i, 0),
              [&](std::int64_t e, float smx) {  // The lane's own experts, as above.
                at(op.dlogits, i, e) = fma(slope, smx, at(op.dlogits, i, e));
              });
}

template <class T>
__global__ void router_weight_gradient(RouterWeightGradient<T> op) {
  pdl_begin();
  const Element e = own_element(op.dwr.rows, op.dwr.cols);
  if (!e.inside) return;
  float sum = 0.0f;
  for (std::int64_t i = 0; i < op.x.rows; ++i) {
    if (at(op.row_document, 0, i) >= 0)
      sum = fma(at(op.dlogits, i, e.row), load(at(op.x, i, e.col)), sum);
  }
  at(op.dwr, e.row, e.col) = add(sum, 0.0f);
}

}  // namespace

template <class T>
void run(CudaQueue queue, const RouterForward<T>& op) {
  launch(queue, dim3(blocks_for(op.x.rows, kWarps)), dim3(kThreads), kPdl, router_forward<T>, op);
}
void run(CudaQueue queue, const ExpertCounts& op) {
  launch(queue, dim3(static_cast<unsigned>(op.counts.cols)), dim3(kThreads), kPdl, expert_counts,
         op);
}
void run(CudaQueue queue, const RouterLoss& op) {
  launch(queue, column_grid(op.sums.cols), dim3(kThreads), kPdl, router_loss_sums, op);
  launch(queue, dim3(1), dim3(1), kPdl, router_loss, op);
}
void run(CudaQueue queue, const RouterBackward& op) {
  launch(queue, dim3(blocks_for(op.logits.rows, kWarps)), dim3(kThreads), kPdl, router_backward,
         op);
}
template <class T>
void run(CudaQueue queue, const RouterWeightGradient<T>& op) {
  launch_elements(queue, op.dwr.rows, op.dwr.cols, router_weight_gradient<T>, op);
}
template void run(CudaQueue, const RouterForward<float>&);
template void run(CudaQueue, const RouterForward<bf16>&);
template void run(CudaQueue, const RouterWeightGradient<float>&);
template void run(CudaQueue, const RouterWeightGradient<bf16>&);

}  // namespace lockstep
