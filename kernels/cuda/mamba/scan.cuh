// Code that the forward and the backward scan share: the decays of a chunk, the addresses of its
// operands, the chunk states.
#pragma once

#include "kernels/cuda/common/reduce.cuh"
#include "kernels/ops/scan.h"

namespace lockstep {

inline constexpr int kChunk = 256;     // The longest chunk, ...
inline constexpr int kState = 256;     // ... the largest state, ...
inline constexpr int kHeadRows = 128;  // ... and the widest head.
inline constexpr int kRowTile = 16;    // Rows of a chunk in a block.

struct Chunk {
  std::int64_t index;
  std::int64_t start;  // First row of the chunk.
  int rows;            // 0 past the last chunk.
};
template <class Op>
__device__ Chunk chunk_at(const Op& op, std::int64_t index) {
  if (at(op.chunk_document, 0, index) < 0) return {index, 0, 0};
  return {index, at(op.chunk_start, 0, index), at(op.chunk_rows, 0, index)};
}
// Whether the next chunk continues this one's document.
template <class Op>
__device__ bool continues(const Op& op, std::int64_t index) {
  return index + 1 < op.chunk_document.cols &&
         at(op.chunk_document, 0, index + 1) == at(op.chunk_document, 0, index);
}
template <class Op>
__device__ bool begins_document(const Op& op, std::int64_t index) {
  return at(op.chunk_document, 0, index) >= 0 && (index == 0 || !continues(op, index - 1));
}

// xbc is [x | B | C]. The column functions return the first column of a head or group.
template <class Op>
__device__ std::int64_t inner_width(const Op& op) {
  return op.xbc.cols - 2ll * op.groups * op.state;
}
template <class Op>
__device__ int head_rows(const Op& op) {
  return static_cast<int>(inner_width(op) / op.heads);
}
template <class Op>
__device__ int group_of(const Op& op, int head) {
  return head / (op.heads / op.groups);
}
template <class Op>
__device__ std::int64_t x_column(const Op& op, int head) {
  return static_cast<std::int64_t>(head) * head_rows(op);
}
template <class Op>
__device__ std::int64_t b_column(const Op& op, int group) {
  return inner_width(op) + static_cast<std::int64_t>(group) * op.state;
}
template <class Op>
__device__ std::int64_t c_column(const Op& op, int group) {
  return inner_width(op) + static_cast<std::int64_t>(op.groups + group) * op.state;
}
// The head's [N, P] part of a row of chunk states.
template <class Op>
__device__ std::int64_t state_column(const Op& op, int head) {
  return static_cast<std::int64_t>(head) * op.state * head_rows(op);
}

// Values of each row j of a (head, chunk), in shared memory.
struct Decay {
  float dt[kChunk];
  float cs[kChunk];
  float e[kChunk];  // expn(cs_j): from the chunk's start to row j.
  float r[kChunk];  // expn(csL - cs_j): from row j to the chunk's end.
  __device__ float w(int j) const { return mul(r[j], dt[j]); }
  __device__ float between(int i, int j) const { return expn(sub(cs[i], cs[j])); }  // Ld_ij
};
template <class Op>
__device__ float raw_dt(const Op& op, std::int64_t row, int head) {
  return add(load(at(op.dt, row, head)), at(op.dt_bias, 0, head));
}
template <class Op>
__device__ float rate_of(const Op& op, int head) {
  return neg(exp(at(op.a_log, 0, head)));
}
// Fills the decays by the whole block of 256 threads; returns eL.
template <class Op>
__device__ float fill(Decay& decay, const Op& op, const Chunk& chunk, int head) {
  const int j = static_cast<int>(threadIdx.x);
  __syncthreads();  // The previous head's, or chunk's, values have been used.
  if (j < chunk.rows) decay.dt[j] = softplus(raw_dt(op, chunk.start + j, head));
  __syncthreads();
  if (j == 0) {
    const float rate = rate_of(op, head);
    float c = 0.0f;
    for (int k = 0; k < chunk.rows; ++k) {
      c = fma(decay.dt[k], rate, c);
      decay.cs[k] = c;
    }
  }
  __syncthreads();
  const float last = decay.cs[chunk.rows - 1];
  if (j < chunk.rows) {
    decay.e[j] = expn(decay.cs[j]);
    decay.r[j] = expn(sub(last, decay.cs[j]));
  }
  __syncthreads();
  return expn(last);
}

// x_j[p] scaled by dt_j, which gives xd_j[p], or by w_j, which gives xw_j[p].
template <class T, class Op>
__device__ T x_scaled(const Op& op, const Chunk& chunk, int head, int j, int p, float scale) {
  return st<T>(mul(load(at(op.xbc, chunk.start + j, x_column(op, head) + p)), scale));
}

// M_ij = st(mul(Gm_ij, Ld_ij)) for j <= i.
template <class T, class Op>
__device__ float mixing(const Op& op, const Chunk& chunk, int head, int i, int j,
                        const Decay& decay) {
  const int group = group_of(op, head);
  const T* const c = &at(op.xbc, chunk.start + i, c_column(op, group));
  const T* const b = &at(op.xbc, chunk.start + j, b_column(op, group));
  return load(st<T>(mul(chain32(c, b, op.state), decay.between(i, j))));
}
// Fills M of rows [first, first + rows) for every j <= i, by the whole block: m[i - first][j].
template <class T, class Op>
__device__ void fill_rows(float (&m)[kRowTile][kChunk], const Op& op, const Chunk& chunk, int head,
                          int first, int rows, const Decay& decay) {
  const int width = first + rows;
  for (int pair = static_cast<int>(threadIdx.x); pair < rows * width; pair += kThreads) {
    const int i = pair / width;
    const int j = pair % width;
    if (j <= first + i) m[i][j] = mixing<T>(op, chunk, head, first + i, j, decay);
  }
}

// y~_i[p]: the output of the state and the rows up to i, without the skip by D. `m` is row i of M.
template <class T, class Op>
__device__ float scan_row(const Op& op, const Chunk& chunk, int head, int i, int p, const float* m,
                          const Decay& decay) {
  const int width = head_rows(op);
  const float* const state = &at(op.states, chunk.index, state_column(op, head));
  const T* const c = &at(op.xbc, chunk.start + i, c_column(op, group_of(op, head)));
  float y = 0.0f;
  for (int n = 0; n < op.state; ++n) y = fma(load(c[n]), load(st<T>(state[n * width + p])), y);
  y = mul(add(y, 0.0f), decay.e[i]);
  for (int j = 0; j <= i; ++j)
    y = fma(m[j], load(x_scaled<T>(op, chunk, head, j, p, decay.dt[j])), y);
  return add(y, 0.0f);
}

// Computes the state at the start of each chunk. One block per (document, head, 256 elements of the
// state), at the document's first chunk, walks the chunks in order.
template <class T, class Op>
__global__ void __launch_bounds__(kThreads) chunk_states(Op op) {
  pdl_begin();
  __shared__ Decay decay;
  if (!begins_document(op, blockIdx.x)) return;
  const int head = static_cast<int>(blockIdx.y);
  const int width = head_rows(op);
  const int element = static_cast<int>(blockIdx.z) * kThreads + static_cast<int>(threadIdx.x);
  const bool inside = element < op.state * width;
  const int n = element / width;
  const int p = element % width;
  float s = 0.0f;
  for (std::int64_t index = blockIdx.x;; ++index) {
    if (inside) at(op.states, index, state_column(op, head) + element) = s;
    if (!continues(op, index)) return;
    const Chunk chunk = chunk_at(op, index);
    const float decay_of_chunk = fill(decay, op, chunk, head);
    if (!inside) continue;
    const std::int64_t b = b_column(op, group_of(op, head)) + n;
    float grown = 0.0f;
    for (int j = 0; j < chunk.rows; ++j) {
      const float xw = load(x_scaled<T>(op, chunk, head, j, p, decay.w(j)));
      grown = fma(load(at(op.xbc, chunk.start + j, b)), xw, grown);
    }
    s = fma(decay_of_chunk, s, add(grown, 0.0f));
  }
}

template <class Op>
std::int64_t host_head_rows(const Op& op) {
  return (op.xbc.cols - 2ll * op.groups * op.state) / op.heads;
}
// (chunk, head, part of the state).
template <class Op>
dim3 state_grid(const Op& op) {
  return dim3(static_cast<unsigned>(op.chunk_document.cols), static_cast<unsigned>(op.heads),
              blocks_for(op.state * host_head_rows(op), kThreads));
}
// (chunk, head or group, rows of the chunk).
template <class Op>
dim3 tile_grid(const Op& op, std::int32_t heads_or_groups, int rows = kRowTile) {
  return dim3(static_cast<unsigned>(op.chunk_document.cols), static_cast<unsigned>(heads_or_groups),
              blocks_for(op.chunk, rows));
}

}  // namespace lockstep
