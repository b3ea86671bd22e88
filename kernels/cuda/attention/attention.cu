// fp32 attention: one warp per (row, head). The lanes hold first the 32 keys (or queries) of a
// block, then the head's channels. bf16 attention is in attention_bf16.cuh.
#include "kernels/core/packed_documents.h"
#include "kernels/cuda/attention/attention_bf16.cuh"

namespace lockstep {
namespace {

inline constexpr int kOwn = kHeadDim / kWarp;  // Lane l owns channels l, l + 32, ..

// Where the heads of a fused row begin, and where the row lies in its document.
struct Place {
  std::int64_t row;
  std::int64_t first;  // First row of the document.
  int i;               // Row in the document.
  int length;          // Rows of the document; 0 for a row of no document.
};
template <class Op>
__device__ Place place_of(const Op& op, std::int64_t row) {
  const std::int32_t document = at(op.row_document, 0, row);
  if (document < 0) return {row, 0, 0, 0};
  const std::int64_t first = first_row_of(op, document);
  return {row, first, static_cast<int>(row - first), tokens_of(op, document)};
}
// Copies a head's vector to where all lanes of the warp read it.
template <class T>
__device__ void share(float* to, const T* from, int n) {
  __syncwarp();  // The previous vector has been used.
  for (int e = lane_index(); e < n; e += kWarp) to[e] = load(from[e]);
  __syncwarp();
}

// acc[e] continues with weight * row[e] in the lane's channels.
template <class T>
__device__ void extend(float (&acc)[kOwn], float weight, const T* row, int n) {
#pragma unroll
  for (int c = 0; c < kOwn; ++c) {
    const int e = lane_index() + c * kWarp;
    if (e < n) acc[c] = fma(weight, load(row[e]), acc[c]);
  }
}
// row[e] = st(f(add(acc[e], +0))).
template <class T, class F>
__device__ void store(T* row, const float (&acc)[kOwn], int n, F f) {
#pragma unroll
  for (int c = 0; c < kOwn; ++c) {
    const int e = lane_index() + c * kWarp;
    if (e < n) row[e] = st<T>(f(add(acc[c], 0.0f)));
  }
}
template <class T>
__device__ void clear(T* row, int n) {
  for (int e = lane_index(); e < n; e += kWarp) row[e] = st<T>(0.0f);
}

template <class T>
__global__ void __launch_bounds__(kThreads) attention_forward(AttentionForward<T> op) {
  pdl_begin();
  __shared__ float q_of_warp[kWarps][kHeadDim];
  const std::int64_t item = warp_item();
  if (item >= op.o.rows * op.heads) return;
  const int head = static_cast<int>(item % op.heads);
  const int kv_head = head / (op.heads / op.kv_heads);
  const int hd = op.head_dim;
  const Place at_row = place_of(op, item / op.heads);
  T* const out = &at(op.o, at_row.row, q_column(op, head));
  if (at_row.length == 0) {
    clear(out, hd);
    if (lane_index() == 0) at(op.lse, at_row.row, head) = 0.0f;
    return;
  }
  float* const q = q_of_warp[warp_index()];
  share(q, &at(op.qkv, at_row.row, q_column(op, head)), hd);

  const float scale = scale_of(hd);
  float m = neg(infinity());
  float l = 0.0f;
  float o[kOwn] = {};
  for (int block = 0; block <= at_row.i; block += kWarp) {
    const int j = block + lane_index();
    const bool visible = j <= at_row.i;
    float s = neg(infinity());
    if (visible)
      s = mul(chain32(q, &at(op.qkv, at_row.first + j, k_column(op, kv_head)), hd), scale);
    const float next = add(max(m, warp_max(s)), 0.0f);
    const float al = expn(sub(m, next));
    const float p = visible ? expn(sub(s, next)) : 0.0f;
    m = next;
    l = fma(l, al, halving_tree(p));
#pragma unroll
    for (int c = 0; c < kOwn; ++c) o[c] = mul(o[c], al);
    for (int x = 0; x < kWarp && block + x <= at_row.i; ++x) {
      const float p_x = load(st<T>(__shfl_sync(kAllLanes, p, x)));
      extend(o, p_x, &at(op.qkv, at_row.first + block + x, v_column(op, kv_head)), hd);
    }
  }
  l = add(l, 0.0f);
  const float inverse = div(1.0f, l);
  store(out, o, hd, [&](float x) { return mul(x, inverse); });
  if (lane_index() == 0) at(op.lse, at_row.row, head) = add(m, log(l));
}

template <class T>
__global__ void attention_delta(AttentionBackward<T> op) {
  pdl_begin();
  const std::int64_t item = warp_item();
  if (item >= op.o.rows * op.heads) return;
  const std::int64_t row = item / op.heads;
  const int head = static_cast<int>(item % op.heads);
  float delta = 0.0f;
  if (at(op.row_document, 0, row) >= 0) {
    const T* const o = &at(op.o, row, q_column(op, head));
    const T* const dout = &at(op.dout, row, q_column(op, head));
    delta = r128(op.head_dim,
                 [&](std::int64_t e, float acc) { return fma(load(o[e]), load(dout[e]), acc); });
  }
  if (lane_index() == 0) at(op.delta, row, head) = delta;
}

// p and ds of one pair of rows.
struct Pair {
  float p;
  float ds;
};
// `q`, `k`, `dout`, `v`: the pair's vectors; the dot products take their terms in order of the
// channel.
template <class T, class Q, class K, class D, class V>
__device__ Pair pair_of(const Q* q, const K* k, const D* dout, const V* v, int hd, float scale,
                        float lse, float delta) {
  const float p = expn(sub(mul(chain32(q, k, hd), scale), lse));
  const float dp = chain32(dout, v, hd);
  return {load(st<T>(p)), load(st<T>(mul(p, sub(dp, delta))))};
}

template <class T>
__global__ void __launch_bounds__(kThreads) attention_query_gradient(AttentionBackward<T> op) {
  pdl_begin();
  __shared__ float q_of_warp[kWarps][kHeadDim];
  __shared__ float dout_of_warp[kWarps][kHeadDim];
  const std::int64_t item = warp_item();
  if (item >= op.o.rows * op.heads) return;
  const int head = static_cast<int>(item % op.heads);
  const int kv_head = head / (op.heads / op.kv_heads);
  const int hd = op.head_dim;
  const Place at_row = place_of(op, item / op.heads);
  T* const dq_row = &at(op.dqkv, at_row.row, q_column(op, head));
  if (at_row.length == 0) {
    clear(dq_row, hd);
    return;
  }
  float* const q = q_of_warp[warp_index()];
  float* const dout = dout_of_warp[warp_index()];
  share(q, &at(op.qkv, at_row.row, q_column(op, head)), hd);
  share(dout, &at(op.dout, at_row.row, q_column(op, head)), hd);

  const float scale = scale_of(hd);
  const float lse = at(op.lse, at_row.row, head);
  const float delta = at(op.delta, at_row.row, head);
  float dq[kOwn] = {};
  for (int block = 0; block <= at_row.i; block += kWarp) {
    const int j = block + lane_index();
    float ds = 0.0f;
    if (j <= at_row.i) {
      const T* const k = &at(op.qkv, at_row.first + j, k_column(op, kv_head));
      const T* const v = &at(op.qkv, at_row.first + j, v_column(op, kv_head));
      ds = pair_of<T>(q, k, dout, v, hd, scale, lse, delta).ds;
    }
    for (int x = 0; x < kWarp && block + x <= at_row.i; ++x) {
      const float ds_x = __shfl_sync(kAllLanes, ds, x);
      extend(dq, ds_x, &at(op.qkv, at_row.first + block + x, k_column(op, kv_head)), hd);
    }
  }
  store(dq_row, dq, hd, [&](float x) { return mul(x, scale); });
}

// One chain per channel of dK and dV, over the heads of the group and in each over the document's
// rows, both ascending.
template <class T>
__global__ void __launch_bounds__(kThreads) attention_key_value_gradient(AttentionBackward<T> op) {
  pdl_begin();
  __shared__ float k_of_warp[kWarps][kHeadDim];
  __shared__ float v_of_warp[kWarps][kHeadDim];
  const std::int64_t item = warp_item();
  if (item >= op.o.rows * op.kv_heads) return;
  const int kv_head = static_cast<int>(item % op.kv_heads);
  const int hd = op.head_dim;
  const Place at_row = place_of(op, item / op.kv_heads);
  T* const dk_row = &at(op.dqkv, at_row.row, k_column(op, kv_head));
  T* const dv_row = &at(op.dqkv, at_row.row, v_column(op, kv_head));
  if (at_row.length == 0) {
    clear(dk_row, hd);
    clear(dv_row, hd);
    return;
  }
  float* const k = k_of_warp[warp_index()];
  float* const v = v_of_warp[warp_index()];
  share(k, &at(op.qkv, at_row.row, k_column(op, kv_head)), hd);
  share(v, &at(op.qkv, at_row.row, v_column(op, kv_head)), hd);

  const float scale = scale_of(hd);
  const int group = op.heads / op.kv_heads;
  float dk[kOwn] = {};
  float dv[kOwn] = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    // Rows before this one do not see it: their p and ds are +0.
    for (int block = at_row.i; block < at_row.length; block += kWarp) {
      const int i = block + lane_index();
      Pair pair = {0.0f, 0.0f};
      if (i < at_row.length) {
        const std::int64_t row = at_row.first + i;
        const T* const q = &at(op.qkv, row, q_column(op, head));
        const T* const dout = &at(op.dout, row, q_column(op, head));
        pair = pair_of<T>(q, k, dout, v, hd, scale, at(op.lse, row, head), at(op.delta, row, head));
      }
      for (int x = 0; x < kWarp && block + x < at_row.length; ++x) {
        const std::int64_t row = at_row.first + block + x;
        extend(dv, __shfl_sync(kAllLanes, pair.p, x), &at(op.dout, row, q_column(op, head)), hd);
        extend(dk, __shfl_sync(kAllLanes, pair.ds, x), &at(op.qkv, row, q_column(op, head)), hd);
      }
    }
  }
  store(dk_row, dk, hd, [&](float x) { return mul(x, scale); });
  store(dv_row, dv, hd, [](float x) { return x; });
}

}  // namespace

template <class T>
void run(CudaQueue queue, const AttentionForward<T>& op) {
  if constexpr (std::is_same_v<T, bf16>) {
    launch_attention_bf16(queue, op);
  } else {
    launch(queue, dim3(blocks_for(op.o.rows * op.heads, kWarps)), dim3(kThreads), kPdl,
           attention_forward<T>, op);
  }
}
template <class T>
void run(CudaQueue queue, const AttentionBackward<T>& op) {
  if constexpr (std::is_same_v<T, bf16>) {
    launch_attention_bf16(queue, op);
  } else {
    const dim3 query_grid(blocks_for(op.o.rows * op.heads, kWarps));
    const dim3 key_grid(blocks_for(op.o.rows * op.kv_heads, kWarps));
    launch(queue, query_grid, dim3(kThreads), kPdl, attention_delta<T>, op);
    launch(queue, query_grid, dim3(kThreads), kPdl, attention_query_gradient<T>, op);
    launch(queue, key_grid, dim3(kThreads), kPdl, attention_key_value_gradient<T>, op);
  }
}
template void run(CudaQueue, const AttentionForward<float>&);
template void run(CudaQueue, const AttentionForward<bf16>&);
template void run(CudaQueue, const AttentionBackward<float>&);
template void run(CudaQueue, const AttentionBackward<bf16>&);

}  // namespace lockstep
