#include "kernels/cuda/eights.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/embedding.h"

namespace lockstep {
namespace {

// drop(x) of eight neighbours in a row that belongs to a document.
template <class Op>
__device__ void drop_eight(const Op& op, std::int64_t row, std::int64_t col, float (&x)[kEight]) {
  if (!op.dropout.active) return;
  const auto number = static_cast<std::uint32_t>(at(op.row_number, 0, row));
  const auto position = static_cast<std::uint32_t>(at(op.row_position, 0, row));
  each_of_eight([&](int k) {
    x[k] = drop(op.dropout, op.state.data[0], number, position, static_cast<std::uint32_t>(col + k), x[k]);
  });
}

template <class T>
__global__ void embedding_forward(EmbeddingForward<T> op, bool wide) {
  const Eights e = own_eight(op.y.rows, op.y.cols);
  if (!e.inside) return;
  float y[kEight] = {};
  if (at(op.row_document, 0, e.row) >= 0) {
    load_eight(y, &at(op.weight, at(op.tokens, 0, e.row), e.col), e.count, wide);
    drop_eight(op, e.row, e.col, y);
  }
  store_eight(&at(op.y, e.row, e.col), y, e.count, wide);
}

// The rows among some that hold a token of a block, in order: the row and the token's place in the block.
inline constexpr int kTokenRows = 1024;  // Rows that are searched before what was found is added.
struct Found {
  std::int32_t row[kTokenRows];
  std::int32_t token[kTokenRows];
  int counts[kWarps];
};
// Searches the rows first .. first + 1023 for the tokens v0 .. v0 + count - 1; returns how many there are, to all
// threads.
template <class T>
__device__ int find(Found& found, const EmbeddingBackward<T>& op, std::int64_t first, std::int64_t v0, int count) {
  int total = 0;
#pragma unroll
  for (int part = 0; part < kTokenRows; part += kThreads) {
    const std::int64_t i = first + part + threadIdx.x;
    std::int64_t place = -1;
    if (i < op.dy.rows) {
      place = at(op.tokens, 0, i) - v0;
      if (place >= 0 && place < count && at(op.row_document, 0, i) < 0) place = -1;
    }
    const bool mine = place >= 0 && place < count;
    if (!__syncthreads_or(mine)) continue;
    const unsigned lanes = __ballot_sync(kAllLanes, mine);
    if (lane_index() == 0) found.counts[warp_index()] = __popc(lanes);
    __syncthreads();
    int before = total;
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp_index()) before += found.counts[w];
      total += found.counts[w];
    }
    if (mine) {
      const int to = before + __popc(lanes & ((1u << lane_index()) - 1u));
      found.row[to] = static_cast<std::int32_t>(i);
      found.token[to] = static_cast<std::int32_t>(place);
    }
  }
  __syncthreads();
  return total;
}

// Sorts what was found by token, in the order of the rows: those of token v are rows[begin[v]] .. rows[begin[v + 1] -
// 1].
inline constexpr int kTokens = 16;
struct Sorted {
  std::int32_t rows[kTokenRows];
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

// A block per 16 rows of the vocabulary. Their sums grow in place, eight columns a thread, in memory that no other
// thread touches: written for the first rows of the microbatch, then only where a token was found.
inline constexpr int kAtOnce = 8;  // Rows that are read before the first of them is added.
template <class T>
__global__ void __launch_bounds__(kThreads) embedding_backward(EmbeddingBackward<T> op, bool wide) {
  __shared__ Found found;
  __shared__ Sorted sorted;
  const std::int64_t v0 = static_cast<std::int64_t>(blockIdx.x) * kTokens;
  const int tokens = static_cast<int>(smaller(kTokens, op.dweight.rows - v0));
  const std::int64_t width = op.dweight.cols;
  for (std::int64_t first = 0; first == 0 || first < op.dy.rows; first += kTokenRows) {
    __syncthreads();  // What was found last has been added.
    const int count = find(found, op, first, v0, tokens);
    if (first > 0 && count == 0) continue;
    sort_by_token(sorted, found, count);
    for (int v = 0; v < tokens; ++v) {
      const int begin = sorted.begin[v];
      const int end = sorted.begin[v + 1];
      if (first > 0 && begin == end) continue;
      for (std::int64_t k = threadIdx.x * kEight; k < width; k += kThreads * kEight) {
        float* const to = &at(op.dweight, v0 + v, k);
        float sum[kEight] = {};
        if (first > 0) load_eight(sum, to, width - k, wide);
        for (int f = begin; f < end; f += kAtOnce) {
          float dy[kAtOnce][kEight];
#pragma unroll
          for (int x = 0; x < kAtOnce; ++x) {
            if (f + x < end) load_eight(dy[x], &at(op.dy, sorted.rows[f + x], k), width - k, wide);
          }
#pragma unroll
          for (int x = 0; x < kAtOnce; ++x) {
            if (f + x >= end) continue;
            drop_eight(op, sorted.rows[f + x], k, dy[x]);
            each_of_eight([&](int c) { sum[c] = add(sum[c], dy[x][c]); });
          }
        }
        each_of_eight([&](int c) { sum[c] = add(sum[c], 0.0f); });
        store_eight(to, sum, width - k, wide);
      }
    }
  }
}

}  // namespace

template <class T>
void run(CudaQueue queue, const EmbeddingForward<T>& op) {
  launch_eights(queue, op.y.rows, op.y.cols, embedding_forward<T>, op, all_move_16_bytes(op.weight, op.y));
}
template <class T>
void run(CudaQueue queue, const EmbeddingBackward<T>& op) {
  launch(queue, dim3(blocks_for(op.dweight.rows, kTokens)), dim3(kThreads), embedding_backward<T>, op,
         all_move_16_bytes(op.dy, op.dweight));
}
template void run(CudaQueue, const EmbeddingForward<float>&);
template void run(CudaQueue, const EmbeddingForward<bf16>&);
template void run(CudaQueue, const EmbeddingBackward<float>&);
template void run(CudaQueue, const EmbeddingBackward<bf16>&);

}  // namespace lockstep
