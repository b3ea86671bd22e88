#include "kernels/cuda/common/gate.cuh"
#include "kernels/cuda/common/row_vec4.cuh"
#include "kernels/cuda/ops/fused_loss.h"
#include "kernels/ops/cross_entropy.h"

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

// One block per row.
template <class T>
__global__ void __launch_bounds__(kThreads) cross_entropy_forward(CrossEntropyForward<T> op) {
  pdl_begin();
  const std::int64_t i = blockIdx.x;
  const std::int32_t target = at(op.targets, 0, i);
  float m = 0.0f;
  float s = 0.0f;
  float loss = 0.0f;
  if (target >= 0) {
    float own = neg(infinity());
    for (std::int64_t v = threadIdx.x; v < op.logits.cols; v += kThreads)
      own = max(own, load(at(op.logits, i, v)));
    m = block_max(own);
    s = r1024(op.logits.cols, [&](std::int64_t v, float acc) {
      return add(acc, expn(sub(load(at(op.logits, i, v)), m)));
    });
    loss = sub(add(m, log(s)), load(at(op.logits, i, target)));
  }
  if (threadIdx.x != 0) return;
  at(op.loss, 0, i) = loss;
  at(op.maximum, 0, i) = m;
  at(op.sum, 0, i) = s;
}

// The larger elements of two pairs; the smaller ones, or NaN if one is NaN.
__device__ __forceinline__ std::uint32_t larger_pair(std::uint32_t a, std::uint32_t b) {
  std::uint32_t r;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
__device__ __forceinline__ std::uint32_t smaller_pair(std::uint32_t a, std::uint32_t b) {
  std::uint32_t r;
  asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}

// The same with the row in registers: thread t of the block holds elements 4t .. 4t + 3 of every
// 1024. If all values of a thread lie within 87 of the maximum, its exponentials need no clamp.
// Three blocks fit a multiprocessor, so that two compute while one reads. kGradient: also writes
// the gradient of `backward`.
template <int kSteps, bool kFull, bool kGradient>
__global__ void __launch_bounds__(kThreads, 3)
    cross_entropy_bf16(CrossEntropyForward<bf16> op, CrossEntropyBackward<bf16> backward) {
  pdl_begin();
  const std::int64_t i = blockIdx.x;
  const std::int32_t target = at(op.targets, 0, i);
  const int vocabulary = static_cast<int>(op.logits.cols);
  float m = 0.0f;
  float s = 0.0f;
  float loss = 0.0f;
  const auto each = [&](auto f) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int v = 1024 * step + 4 * static_cast<int>(threadIdx.x);
      if (kFull || v < vocabulary) f(step, v);
    }
  };
  if (target >= 0) {
    const bf16* const row = &at(op.logits, i, 0);
    Vec4 x[kSteps];
    each([&](int step, int v) { x[step] = *reinterpret_cast<const Vec4*>(row + v); });
    Vec4 extremes = {
        {0xff80ff80u,
         0x7f807f80u}};  // -inf twice, +inf twice: the largest two and the smallest two.
    each([&](int step, int) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        extremes.pairs[0] = larger_pair(extremes.pairs[0], x[step].pairs[c]);
        extremes.pairs[1] = smaller_pair(extremes.pairs[1], x[step].pairs[c]);
      }
    });
    m = block_max(max(extremes[0], extremes[1]));
    Accumulators a;
    const auto sum = [&](auto exponential) {
      each([&](int step, int) {
#pragma unroll
        for (int c = 0; c < 4; ++c) a.acc[c] = add(a.acc[c], exponential(sub(x[step][c], m)));
      });
    };
    const bool in_range = sub(m, extremes[2]) <= 87.0f && sub(m, extremes[3]) <= 87.0f;
    if (in_range) {
      sum([](float x) { return expn_in_range(x); });
    } else {
      sum([](float x) { return expn(x); });
    }
    s = tree1024(a);
    const float of_target = load(row[target]);
    loss = sub(add(m, log(s)), of_target);
    if constexpr (kGradient) {
      const float inverse = div(1.0f, s), inverse_targets = backward.state.data[0].inverse_targets;
      bf16* const to = &at(backward.dlogits, i, 0);
      const auto store = [&](auto exponential) {
        const auto p = [&](float x) { return mul(exponential(sub(x, m)), inverse); };
        each([&](int step, int v) {
          float d[4];
#pragma unroll
          for (int c = 0; c < 4; ++c) d[c] = mul(p(x[step][c]), inverse_targets);
          vec4(d).store(to + v);
        });
        // The target's 1 is subtracted by the thread that has its column.
        if (target / 4 % kThreads == static_cast<int>(threadIdx.x))
          to[target] = st<bf16>(mul(sub(p(of_target), 1.0f), inverse_targets));
      };
      if (in_range) {
        store([](float x) { return expn_in_range(x); });
      } else {
        store([](float x) { return expn(x); });
      }
    }
  } else if constexpr (kGradient) {
    each([&](int, int v) { Vec4{}.store(&at(backward.dlogits, i, v)); });
  }
  if (threadIdx.x != 0) return;
  at(op.loss, 0, i) = loss;
  at(op.maximum, 0, i) = m;
  at(op.sum, 0, i) = s;
}
bool runs_in_registers(const CrossEntropyForward<bf16>& op) {
  return op.logits.cols % 4 == 0 && op.logits.cols <= 32768 && all_vectorizable(op.logits);
}
template <bool kGradient>
void run_in_registers(CudaQueue queue, const CrossEntropyForward<bf16>& op,
                      const CrossEntropyBackward<bf16>& backward) {
  const dim3 grid(static_cast<unsigned>(op.logits.rows));
  const auto kernel = op.logits.cols == 32768  ? cross_entropy_bf16<32, true, kGradient>
                      : op.logits.cols > 8192  ? cross_entropy_bf16<32, false, kGradient>
                      : op.logits.cols == 8192 ? cross_entropy_bf16<8, true, kGradient>
                                               : cross_entropy_bf16<8, false, kGradient>;
  launch(queue, grid, dim3(kThreads), kPdl, kernel, op, backward);
}

// One block per row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_backward(CrossEntropyBackward<T> op, bool wide) {
  pdl_begin();
  const std::int64_t i = blockIdx.x;
  const std::int32_t target = at(op.targets, 0, i);
  const std::int64_t vocabulary = op.logits.cols;
  const float inverse = target >= 0 ? div(1.0f, at(op.sum, 0, i)) : 0.0f;
  const float m = target >= 0 ? at(op.maximum, 0, i) : 0.0f;
  const float inverse_targets = op.state.data[0].inverse_targets;
#pragma unroll 4
  for (std::int64_t v = threadIdx.x * kVec8; v < vocabulary; v += kThreads * kVec8) {
    float x[kVec8] = {};
    if (target >= 0) {
      load_vec8(x, &at(op.logits, i, v), vocabulary - v, wide);
      each_vec8([&](int k) {
        const float p = mul(expn(sub(x[k], m)), inverse);
        x[k] = mul(sub(p, v + k == target ? 1.0f : 0.0f), inverse_targets);
      });
    }
    store_vec8(&at(op.dlogits, i, v), x, vocabulary - v, wide);
  }
}

// One block. CS of a single column: each thread sums blocks of 32 rows, which are then added in
// order.
__global__ void __launch_bounds__(kThreads) microbatch_loss(MicrobatchLoss op) {
  pdl_begin();
  __shared__ float partial[kThreads];
  const std::int64_t blocks = (op.loss.cols + kRowBlock - 1) / kRowBlock;
  float s = 0.0f;
  for (std::int64_t first = 0; first < blocks; first += kThreads) {
    const std::int64_t begin = (first + threadIdx.x) * kRowBlock;
    const std::int64_t end = smaller(op.loss.cols, begin + kRowBlock);
    float p = 0.0f;
#pragma unroll 8
    for (std::int64_t i = begin; i < end; ++i) p = add(p, at(op.loss, 0, i));
    __syncthreads();  // The previous sums have been used.
    partial[threadIdx.x] = p;
    __syncthreads();
    if (threadIdx.x != 0) continue;
    const int count = static_cast<int>(smaller(kThreads, blocks - first));
#pragma unroll 16
    for (int b = 0; b < count; ++b) s = add(s, partial[b]);
  }
  if (threadIdx.x == 0) op.total.data[0] = mul(add(s, 0.0f), op.state.data[0].inverse_targets);
}

}  // namespace

template <class T>
void run(CudaQueue queue, const CrossEntropyForward<T>& op) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (runs_in_registers(op)) return run_in_registers<false>(queue, op, {});
  }
  launch(queue, dim3(static_cast<unsigned>(op.logits.rows)), dim3(kThreads), kPdl,
         cross_entropy_forward<T>, op);
}
template <class T>
void run(CudaQueue queue, const CrossEntropyBackward<T>& op) {
  launch(queue, dim3(static_cast<unsigned>(op.logits.rows)), dim3(kThreads), kPdl,
         cross_entropy_backward<T>, op, all_vectorizable(op.logits, op.dlogits));
}
void run(CudaQueue queue, const MicrobatchLoss& op) {
  launch(queue, dim3(1), dim3(kThreads), kPdl, microbatch_loss, op);
}
bool can_fuse(const CrossEntropyForward<bf16>& forward,
              const CrossEntropyBackward<bf16>& backward) {
  return runs_in_registers(forward) && is_vectorizable(backward.dlogits) &&
         backward.logits == forward.logits && backward.targets == forward.targets &&
         backward.maximum.data == forward.maximum.data && backward.sum.data == forward.sum.data;
}
void run_fused(CudaQueue queue, const CrossEntropyForward<bf16>& forward,
               const CrossEntropyBackward<bf16>& backward) {
  run_in_registers<true>(queue, forward, backward);
}
template void run(CudaQueue, const CrossEntropyForward<float>&);
template void run(CudaQueue, const CrossEntropyForward<bf16>&);
template void run(CudaQueue, const CrossEntropyBackward<float>&);
template void run(CudaQueue, const CrossEntropyBackward<bf16>&);

}  // namespace lockstep
