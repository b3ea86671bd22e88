#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/vec8.cuh"
#include "kernels/cuda/ops/optimizer.h"
#include "kernels/ops/accumulate.h"
#include "kernels/ops/optimizer.h"

namespace lockstep {
namespace {

__global__ void accumulate_gradient(AccumulateGradient op, bool wide) {
  pdl_begin();
  const Vec8s e = own_vec8(op.acc.rows, op.acc.cols);
  if (!e.inside) return;
  float acc[kVec8];
  float g[kVec8];
  load_vec8(acc, &at(op.acc, e.row, e.col), e.count, wide);
  for (std::int64_t row = e.row; row < op.g.rows; row += op.acc.rows) {
    load_vec8(g, &at(op.g, row, e.col), e.count, wide);
    each_vec8([&](int k) { acc[k] = add(acc[k], g[k]); });
  }
  store_vec8(&at(op.acc, e.row, e.col), acc, e.count, wide);
}

// Neighbouring threads write neighbouring pieces of 16 bytes; pieces of 32 would leave as two half
// sectors each.
inline constexpr int kZeros = 4;  // Pieces per thread.
__device__ __forceinline__ void run_block(const ZeroGradient& op, unsigned block) {
  const std::int64_t pieces = op.acc.rows * op.acc.cols / 4;
  const std::int64_t first = std::int64_t{block} * kZeros * kThreads + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kZeros; ++k) {
    const std::int64_t piece = first + k * kThreads;
    if (piece < pieces) store_16(op.acc.data + 4 * piece, 0, 0, 0, 0);
  }
}
__global__ void zero_gradient_alone(ZeroGradient op) {
  pdl_begin();
  const Element e = own_element(op.acc.rows, op.acc.cols);
  if (e.inside) at(op.acc, e.row, e.col) = 0.0f;
}

// One warp per row of whole fours, at multiples of 16 bytes. Of rows of one element, as a vector
// has them, a thread takes one: all other terms are +0.
__device__ __forceinline__ void run_block(const GradientRowSums& op, unsigned block) {
  if (op.g.cols == 1) {
    const std::int64_t i = std::int64_t{block} * kThreads + threadIdx.x;
    if (i >= op.g.rows) return;
    const float g = at(op.g, i, 0);
    at(op.sums, 0, i) = add(mul(g, g), 0.0f);
    return;
  }
  const std::int64_t i = std::int64_t{block} * kWarps + warp_index();
  if (i >= op.g.rows) return;
  const float* const row = &at(op.g, i, 0);
  Accumulators a;
#pragma unroll 8
  for (int k = 4 * lane_index(); k < static_cast<int>(op.g.cols); k += 4 * kWarp) {
    const float4 g = *reinterpret_cast<const float4*>(row + k);
    a.acc[0] = fma(g.x, g.x, a.acc[0]);
    a.acc[1] = fma(g.y, g.y, a.acc[1]);
    a.acc[2] = fma(g.z, g.z, a.acc[2]);
    a.acc[3] = fma(g.w, g.w, a.acc[3]);
  }
  const float sum = add(tree128(a), 0.0f);
  if (lane_index() == 0) at(op.sums, 0, i) = sum;
}
// One warp per row.
__global__ void gradient_row_sums_alone(GradientRowSums op) {
  pdl_begin();
  const std::int64_t i = warp_item();
  if (i >= op.g.rows) return;
  const float sum = r128(op.g.cols, [&](std::int64_t k, float acc) {
    const float g = at(op.g, i, k);
    return fma(g, g, acc);
  });
  if (lane_index() == 0) at(op.sums, 0, i) = sum;
}

__global__ void order_row_sums(OrderRowSums op) {
  pdl_begin();
  const Element e = own_element(1, op.order.cols);
  if (e.inside) at(op.to, 0, e.col) = at(op.from, 0, at(op.order, 0, e.col));
}

// One block, so that what it waits for is memory: a thread loads many terms before it adds the
// first. Behind the end it adds +0, which changes no sum: none is -0.
__global__ void __launch_bounds__(kThreads) gradient_norm(GradientNorm op, bool wide) {
  pdl_begin();
  constexpr int kTogether = 16, kStride = 4 * kThreads;
  Accumulators a;
  for (std::int64_t first = 4 * static_cast<int>(threadIdx.x); first < op.sums.cols;
       first += kTogether * kStride) {
    float4 terms[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const std::int64_t e = first + j * kStride;
      const float* const from = op.sums.data + e;
      const auto term = [&](int c) { return e + c < op.sums.cols ? from[c] : 0.0f; };
      terms[j] = wide && e + 4 <= op.sums.cols ? *reinterpret_cast<const float4*>(from)
                                               : make_float4(term(0), term(1), term(2), term(3));
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      a.acc[0] = add(a.acc[0], terms[j].x);
      a.acc[1] = add(a.acc[1], terms[j].y);
      a.acc[2] = add(a.acc[2], terms[j].z);
      a.acc[3] = add(a.acc[3], terms[j].w);
    }
  }
  const float ss = tree1024(a);
  if (threadIdx.x != 0) return;
  const float norm = sqrt(ss);
  at(op.norm, 0, 0) = norm;
  at(op.norm, 0, 1) = op.max_norm > 0.0f && norm > op.max_norm ? div(op.max_norm, norm) : 1.0f;
}

struct Updated {
  float w, m, v;
};
__device__ __forceinline__ Updated updated(const AdamW& op, float w, float m0, float v0,
                                           float gradient) {
  const StepState& state = op.state.data[0];
  const float g = mul(gradient, at(op.norm, 0, 1));
  const float m = fma(op.beta1, m0, mul(op.one_minus_beta1, g));
  const float v = fma(op.beta2, v0, mul(op.one_minus_beta2, mul(g, g)));
  const float step =
      div(mul(m, state.bias_correction1), add(sqrt(mul(v, state.bias_correction2)), op.eps));
  return {fma(neg(state.learning_rate), fma(op.weight_decay, w, step), w), m, v};
}
__global__ void adamw_alone(AdamW op) {
  pdl_begin();
  const Element e = own_element(op.w.rows, op.w.cols);
  if (!e.inside) return;
  const Updated u = updated(op, at(op.w, e.row, e.col), at(op.m, e.row, e.col),
                            at(op.v, e.row, e.col), at(op.g, e.row, e.col));
  at(op.m, e.row, e.col) = u.m;
  at(op.v, e.row, e.col) = u.v;
  at(op.w, e.row, e.col) = u.w;
  if (op.copy.data != nullptr) at(op.copy, e.row, e.col) = st<bf16>(u.w);
}
// One thread per four neighbours of operands without gaps.
__device__ __forceinline__ void run_block(const AdamW& op, unsigned block) {
  const std::int64_t four = std::int64_t{block} * kThreads + threadIdx.x;
  if (four >= op.w.rows * op.w.cols / 4) return;
  const std::int64_t first = 4 * four;
  const auto load_four = [&](const float* from) {
    return *reinterpret_cast<const float4*>(from + first);
  };
  const float4 w = load_four(op.w.data), m = load_four(op.m.data), v = load_four(op.v.data),
               g = load_four(op.g.data);
  const Updated u[] = {updated(op, w.x, m.x, v.x, g.x), updated(op, w.y, m.y, v.y, g.y),
                       updated(op, w.z, m.z, v.z, g.z), updated(op, w.w, m.w, v.w, g.w)};
  const auto store_four = [&](float* to, float Updated::*which) {
    store_16(to + first, bits(u[0].*which), bits(u[1].*which), bits(u[2].*which),
             bits(u[3].*which));
  };
  store_four(op.m.data, &Updated::m);
  store_four(op.v.data, &Updated::v);
  store_four(op.w.data, &Updated::w);
  if (op.copy.data != nullptr)
    store_8(op.copy.data + first, stored_pair(u[0].w, u[1].w), stored_pair(u[2].w, u[3].w));
}

__global__ void round_weights(RoundWeights op, bool wide) {
  pdl_begin();
  const Vec8s e = own_vec8(op.copy.rows, op.copy.cols);
  if (!e.inside) return;
  float w[kVec8];
  load_vec8(w, &at(op.w, e.row, e.col), e.count, wide);
  store_vec8(&at(op.copy, e.row, e.col), w, e.count, wide);
}

// ---- Several ops by one kernel ------------------------------------------------------------------

// Ops of one type, side by side: those of a small model are so short that each would take as long
// as its launch.
template <class Op, int kMost>
struct Batch {
  Op ops[kMost];
  unsigned ends[kMost];  // The block behind each op's last one.
};
template <class Op, int kMost>
__global__ void run_blocks(const __grid_constant__ Batch<Op, kMost> batch) {
  pdl_begin();
  int k = 0;
  while (blockIdx.x >= batch.ends[k]) ++k;
  run_block(batch.ops[k], blockIdx.x - (k == 0 ? 0 : batch.ends[k - 1]));
}
// As many as the 4 KiB of a kernel's parameters hold, and not so many that a block searches long.
template <class Op>
inline constexpr int kMostTogether = sizeof(Op) <= 120
                                         ? 32
                                         : static_cast<int>(4000 / (sizeof(Op) + sizeof(unsigned)));

// Whether every operand's rows follow each other without gaps.
template <class... Operands>
bool is_contiguous(const Operands&... operands) {
  return ((operands.rows <= 1 || operands.pitch == operands.cols) && ...);
}
unsigned blocks_of(const ZeroGradient& op) {
  return blocks_for(op.acc.rows * op.acc.cols / 4, kZeros * kThreads);
}
unsigned blocks_of(const GradientRowSums& op) {
  return blocks_for(op.g.rows, op.g.cols == 1 ? kThreads : kWarps);
}
unsigned blocks_of(const AdamW& op) { return blocks_for(op.w.rows * op.w.cols / 4, kThreads); }

template <class Op>
void launch_batch(CudaQueue queue, std::span<const Op* const> ops) {
  constexpr int kMost = kMostTogether<Op>;
  for (std::size_t first = 0; first < ops.size(); first += kMost) {
    Batch<Op, kMost> batch = {};
    unsigned end = 0;
    for (std::size_t k = 0; k < kMost && first + k < ops.size(); ++k) {
      batch.ops[k] = *ops[first + k];
      batch.ends[k] = end += blocks_of(*ops[first + k]);
    }
    launch(queue, dim3(end), dim3(kThreads), kPdl, run_blocks<Op, kMost>, batch);
  }
}
template <class Op>
void launch_alone(CudaQueue queue, const Op& op) {
  const Batch<Op, 1> batch = {{op}, {blocks_of(op)}};
  launch(queue, dim3(batch.ends[0]), dim3(kThreads), kPdl, run_blocks<Op, 1>, batch);
}

}  // namespace

bool joins_batch(const ZeroGradient& op) {
  return is_vectorizable(op.acc) && is_contiguous(op.acc) && op.acc.rows * op.acc.cols % 4 == 0;
}
bool joins_batch(const GradientRowSums& op) {
  return op.g.cols == 1 || (op.g.cols % 4 == 0 && op.g.cols < (std::int64_t{1} << 31) - 4 * kWarp &&
                            is_vectorizable(op.g));
}
bool joins_batch(const AdamW& op) {
  return op.w.rows * op.w.cols % 4 == 0 && is_contiguous(op.g, op.w, op.m, op.v, op.copy) &&
         all_vectorizable(op.g, op.w, op.m, op.v, op.copy);
}
void run_batch(CudaQueue queue, std::span<const ZeroGradient* const> ops) {
  launch_batch(queue, ops);
}
void run_batch(CudaQueue queue, std::span<const GradientRowSums* const> ops) {
  launch_batch(queue, ops);
}
void run_batch(CudaQueue queue, std::span<const AdamW* const> ops) { launch_batch(queue, ops); }

void run(CudaQueue queue, const AccumulateGradient& op) {
  launch_vec8(queue, op.acc.rows, op.acc.cols, accumulate_gradient, op,
              all_vectorizable(op.g, op.acc));
}
void run(CudaQueue queue, const ZeroGradient& op) {
  if (joins_batch(op)) return launch_alone(queue, op);
  launch_elements(queue, op.acc.rows, op.acc.cols, zero_gradient_alone, op);
}
void run(CudaQueue queue, const GradientRowSums& op) {
  if (joins_batch(op)) return launch_alone(queue, op);
  launch(queue, dim3(blocks_for(op.g.rows, kWarps)), dim3(kThreads), kPdl, gradient_row_sums_alone,
         op);
}
void run(CudaQueue queue, const OrderRowSums& op) {
  launch_elements(queue, 1, op.order.cols, order_row_sums, op);
}
void run(CudaQueue queue, const GradientNorm& op) {
  launch(queue, dim3(1), dim3(kThreads), kPdl, gradient_norm, op, is_vectorizable(op.sums));
}
void run(CudaQueue queue, const AdamW& op) {
  if (joins_batch(op)) return launch_alone(queue, op);
  launch_elements(queue, op.w.rows, op.w.cols, adamw_alone, op);
}
void run(CudaQueue queue, const RoundWeights& op) {
  launch_vec8(queue, op.copy.rows, op.copy.cols, round_weights, op,
              all_vectorizable(op.w, op.copy));
}

}  // namespace lockstep
