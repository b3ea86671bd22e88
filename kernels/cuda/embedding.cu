#include "kernels/cuda/eights.cuh"
#include "kernels/cuda/row_quads.cuh"
#include "kernels/embedding.h"

namespace lockstep {
namespace {

// drop(x) of some neighbours in a row that belongs to a document.
template <class Op, int kCount>
__device__ void drop_some(const Op& op, std::int64_t row, std::int64_t col, float (&x)[kCount]) {
  if (!op.dropout.active) return;
  const auto number = static_cast<std::uint32_t>(at(op.row_number, 0, row));
  const auto position = static_cast<std::uint32_t>(at(op.row_position, 0, row));
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    x[k] = drop(op.dropout, op.state.data[0], number, position, static_cast<std::uint32_t>(col + k), x[k]);
  }
}

template <class T>
__global__ void embedding_forward(EmbeddingForward<T> op, bool wide) {
  start_after_last_kernel();
  const Eights e = own_eight(op.y.rows, op.y.cols);
  if (!e.inside) return;
  float y[kEight] = {};
  if (at(op.row_document, 0, e.row) >= 0) {
    load_eight(y, &at(op.weight, at(op.tokens, 0, e.row), e.col), e.count, wide);
    drop_some(op, e.row, e.col, y);
  }
  store_eight(&at(op.y, e.row, e.col), y, e.count, wide);
}

// Rows that hold a token of a block, in order: the row and the token's place in the block.
inline constexpr int kFound = 2048;             // As many before they are added.
inline constexpr int kSearched = 4 * kThreads;  // Rows that are searched at once, four neighbours a thread.
struct Found {
  std::int32_t row[kFound];
  std::int32_t token[kFound];
  int counts[kWarps];
};
// The tokens of four neighbouring rows, -1 behind the last.
template <class T>
__device__ int4 four_tokens(const EmbeddingBackward<T>& op, std::int64_t row, bool wide) {
  const std::int32_t* const tokens = op.tokens.data;
  if (wide && row + 4 <= op.dy.rows) return *reinterpret_cast<const int4*>(tokens + row);
  const auto one = [&](int k) { return row + k < op.dy.rows ? tokens[row + k] : -1; };
  return make_int4(one(0), one(1), one(2), one(3));
}
__device__ std::uint32_t place_of(std::int32_t token, std::int32_t v0) {
  return static_cast<std::uint32_t>(token) - static_cast<std::uint32_t>(v0);
}
// Searches the rows first .. first + kSearched - 1 for the tokens v0 .. v0 + count - 1. `total`: how many have been
// found, before and after, in all threads.
template <class T>
__device__ int find(Found& found, const EmbeddingBackward<T>& op, std::int64_t first, const int4& tokens,
                    std::int32_t v0, int count, int total) {
  const std::int64_t row = first + 4 * static_cast<int>(threadIdx.x);
  const std::int32_t token[4] = {tokens.x, tokens.y, tokens.z, tokens.w};  // Those of no document may be anything.
  bool mine[4];
  int own = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    mine[k] = place_of(token[k], v0) < static_cast<std::uint32_t>(count) && at(op.row_document, 0, row + k) >= 0;
    own += mine[k] ? 1 : 0;
  }
  if (!__syncthreads_or(own)) return total;
  int to = own;  // The sum of the lanes up to this one.
#pragma unroll
  for (int off = 1; off < kWarp; off *= 2) {
    const int before = __shfl_up_sync(kAllLanes, to, off);
    if (lane_index() >= off) to += before;
  }
  if (lane_index() == kWarp - 1) found.counts[warp_index()] = to;
  __syncthreads();
  to += total - own;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp_index()) to += found.counts[w];
    total += found.counts[w];
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (!mine[k]) continue;
    found.row[to] = static_cast<std::int32_t>(row + k);
    found.token[to++] = static_cast<std::int32_t>(place_of(token[k], v0));
  }
  return total;
}

// Sorts what was found by token, in the order of the rows: those of token v are rows[begin[v]] .. rows[begin[v + 1] -
// 1].
inline constexpr int kTokens = 16;
struct Sorted {
  std::int32_t rows[kFound];
  int begin[kTokens + 1];
};
__device__ void sort_by_token(Sorted& sorted, const Found& found, int count) {
  __shared__ int counts[kTokens];
  const int v = static_cast<int>(threadIdx.x);
  if (v < kTokens) {
    int mine = 0;
    for (int f = 0; f < count; ++f) mine += found.token[f] == v ? 1 : 0;
    counts[v] = mine;
  }
  __syncthreads();
  if (v < kTokens) {
    int to = 0;
    for (int u = 0; u < v; ++u) to += counts[u];
    sorted.begin[v] = to;
    if (v == kTokens - 1) sorted.begin[kTokens] = to + counts[v];
    for (int f = 0; f < count; ++f) {
      if (found.token[f] == v) sorted.rows[to++] = found.row[f];
    }
  }
  __syncthreads();
}

template <class T>
__device__ __forceinline__ void load_four(float (&to)[4], const T* from, std::int64_t count, bool wide) {
  if constexpr (std::is_same_v<T, bf16>) {
    const Quad q = wide && count >= 4 ? *reinterpret_cast<const Quad*>(from) : Quad{};
#pragma unroll
    for (int c = 0; c < 4; ++c) to[c] = wide && count >= 4 ? q[c] : c < count ? load(from[c]) : 0.0f;
  } else {
    const float4 q = wide && count >= 4 ? quad_of(from, 0) : float4{};
#pragma unroll
    for (int c = 0; c < 4; ++c) to[c] = wide && count >= 4 ? part(q, c) : c < count ? from[c] : 0.0f;
  }
}

// Adds the rows of dy that were found to the sums of the block's tokens, four columns a thread, in memory that no other
// thread touches. `begins`: writes all sums; else only those of tokens that were found.
inline constexpr int kAtOnce = 8;  // Rows that are read before the first of them is added.
template <class T>
__device__ void add_found(const EmbeddingBackward<T>& op, const Sorted& sorted, std::int64_t v0, int tokens,
                          bool begins, bool wide) {
  const std::int64_t width = op.dweight.cols;
  for (int v = 0; v < tokens; ++v) {
    const int begin = sorted.begin[v];
    const int end = sorted.begin[v + 1];
    if (!begins && begin == end) continue;
    for (std::int64_t k = threadIdx.x * 4; k < width; k += kThreads * 4) {
      float* const to = &at(op.dweight, v0 + v, k);
      float sum[4] = {};
      if (!begins) load_four(sum, to, width - k, wide);
      for (int f = begin; f < end; f += kAtOnce) {
        float dy[kAtOnce][4];
#pragma unroll
        for (int x = 0; x < kAtOnce; ++x) {
          if (f + x < end) load_four(dy[x], &at(op.dy, sorted.rows[f + x], k), width - k, wide);
        }
#pragma unroll
        for (int x = 0; x < kAtOnce; ++x) {
          if (f + x >= end) continue;
          drop_some(op, sorted.rows[f + x], k, dy[x]);
#pragma unroll
          for (int c = 0; c < 4; ++c) sum[c] = add(sum[c], dy[x][c]);
        }
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[c] = add(sum[c], 0.0f);
      if (wide && width - k >= 4) {
        store_16(to, bits(sum[0]), bits(sum[1]), bits(sum[2]), bits(sum[3]));
      } else {
        for (int c = 0; c < 4 && k + c < width; ++c) to[c] = sum[c];
      }
    }
  }
}

// A block per 16 rows of the vocabulary.
template <class T>
__global__ void __launch_bounds__(kThreads) embedding_backward(EmbeddingBackward<T> op, bool wide, bool wide_tokens) {
  start_after_last_kernel();
  __shared__ Found found;
  __shared__ Sorted sorted;
  const std::int64_t v0 = static_cast<std::int64_t>(blockIdx.x) * kTokens;
  const int tokens = static_cast<int>(smaller(kTokens, op.dweight.rows - v0));
  const auto take = [&](std::int64_t first) { return four_tokens(op, first + 4 * threadIdx.x, wide_tokens); };
  bool begins = true;
  int count = 0;
  int4 next = take(0);
  for (std::int64_t first = 0; first == 0 || first < op.dy.rows; first += kSearched) {
    const int4 here = next;
    next = take(first + kSearched);
    count = find(found, op, first, here, static_cast<std::int32_t>(v0), tokens, count);
    const bool last = first + kSearched >= op.dy.rows;
    if (!last && count <= kFound - kSearched) continue;
    __syncthreads();  // All have written what they found.
    if (begins || count > 0) {
      sort_by_token(sorted, found, count);
      add_found(op, sorted, v0, tokens, begins, wide);
      __syncthreads();  // What was sorted has been added.
    }
    begins = false;
    count = 0;
  }
}

}  // namespace

template <class T>
void run(CudaQueue queue, const EmbeddingForward<T>& op) {
  launch_eights(queue, op.y.rows, op.y.cols, embedding_forward<T>, op, all_move_16_bytes(op.weight, op.y));
}
template <class T>
void run(CudaQueue queue, const EmbeddingBackward<T>& op) {
  launch(queue, dim3(blocks_for(op.dweight.rows, kTokens)), dim3(kThreads), kEarly, embedding_backward<T>, op,
         all_move_16_bytes(op.dy, op.dweight), reinterpret_cast<std::uintptr_t>(op.tokens.data) % 16 == 0);
}
template void run(CudaQueue, const EmbeddingForward<float>&);
template void run(CudaQueue, const EmbeddingForward<bf16>&);
template void run(CudaQueue, const EmbeddingBackward<float>&);
template void run(CudaQueue, const EmbeddingBackward<bf16>&);

}  // namespace lockstep
