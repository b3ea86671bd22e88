#include "kernels/cuda/common/row_vec4.cuh"
#include "kernels/cuda/common/vec8.cuh"
#include "kernels/ops/embedding.h"

namespace lockstep {
namespace {

// drop(x) of neighbours in a row that belongs to a document.
template <class Op, int kCount>
__device__ void drop_some(const Op& op, std::int64_t row, std::int64_t col, float (&x)[kCount]) {
  if (!op.dropout.active) return;
  const auto number = static_cast<std::uint32_t>(at(op.row_number, 0, row));
  const auto position = static_cast<std::uint32_t>(at(op.row_position, 0, row));
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    x[k] = drop(op.dropout, op.state.data[0], number, position, static_cast<std::uint32_t>(col + k),
                x[k]);
  }
}

template <class T>
__global__ void embedding_forward(EmbeddingForward<T> op, bool wide) {
  pdl_begin();
  const Vec8s e = own_vec8(op.y.rows, op.y.cols);
  if (!e.inside) return;
  float y[kVec8] = {};
  if (at(op.row_document, 0, e.row) >= 0) {
    load_vec8(y, &at(op.weight, at(op.tokens, 0, e.row), e.col), e.count, wide);
    drop_some(op, e.row, e.col, y);
  }
  store_vec8(&at(op.y, e.row, e.col), y, e.count, wide);
}

// A block of the gradient has every 2^shift-th token, so that frequent neighbours fall to different
// blocks, and kColumns columns of them.
inline constexpr int kBlock = 512;
inline constexpr int kBlockWarps = kBlock / kWarp;
inline constexpr int kColumns = 512;
inline constexpr int kMostTokens = kBlock;
inline constexpr int kMostFound = 8192;
inline constexpr int kLook = 8;  // Rows that a thread tests before the block counts.
inline constexpr int kSearched = kLook * kBlock;
struct Tokens {
  std::int32_t first;  // The block's first token; the others follow 2^shift apart.
  int shift;
  int count;

  __device__ __forceinline__ bool has(std::int32_t token) const {
    return ((static_cast<std::uint32_t>(token) ^ static_cast<std::uint32_t>(first)) &
            ((1u << shift) - 1)) == 0 &
           place(token) < static_cast<std::uint32_t>(count);
  }
  __device__ __forceinline__ std::uint32_t place(std::int32_t token) const {
    return static_cast<std::uint32_t>(token) >> shift;
  }
  __device__ __forceinline__ std::int64_t at(int place) const {
    return first + (std::int64_t{place} << shift);
  }
};
// The rows that hold a token of the block: `row` in row order, `rows` sorted by token. Token p of
// the block has rows[ends[p - 1]] .. rows[ends[p] - 1]. `places` lists the tokens whose result is
// written.
struct Found {
  std::int32_t row[kMostFound];
  std::int32_t rows[kMostFound];
  std::uint16_t place[kMostFound];
  int ends[kMostTokens];
  std::uint16_t places[kMostTokens];
  int counts[kBlockWarps];
};
// Searches the rows first .. first + kSearched - 1. `total` rows have been found before, by all
// threads; returns how many have been found after.
template <class T>
__device__ int find(Found& found, const EmbeddingBackward<T>& op, int first, const Tokens& tokens,
                    int total) {
  const int own = first + warp_index() * kLook * kWarp + lane_index();
  const int rows = static_cast<int>(op.dy.rows);
  std::int32_t token[kLook];  // Undefined in rows of no document.
  std::int32_t document[kLook];
#pragma unroll
  for (int k = 0; k < kLook; ++k) {
    const int row = ::min(own + k * kWarp, rows - 1);
    token[k] = op.tokens.data[row];
    document[k] = op.row_document.data[row];
  }
  std::uint32_t mine[kLook];
  int count = 0;
#pragma unroll
  for (int k = 0; k < kLook; ++k) {
    mine[k] =
        __ballot_sync(kAllLanes, own + k * kWarp < rows & document[k] >= 0 & tokens.has(token[k]));
    count += __popc(mine[k]);
  }
  __syncthreads();  // The previous counts have been used.
  if (lane_index() == 0) found.counts[warp_index()] = count;
  __syncthreads();
  int to = total;
#pragma unroll
  for (int w = 0; w < kBlockWarps; ++w) {
    if (w < warp_index()) to += found.counts[w];
    total += found.counts[w];
  }
  const std::uint32_t before = (1u << lane_index()) - 1;
#pragma unroll
  for (int k = 0; k < kLook; ++k) {
    if (mine[k] >> lane_index() & 1) {
      const int at_place = to + __popc(mine[k] & before);
      found.row[at_place] = own + k * kWarp;
      found.place[at_place] = static_cast<std::uint16_t>(tokens.place(token[k]));
    }
    to += __popc(mine[k]);
  }
  return total;
}
// Returns how many tokens have a result. `kAdds`: a token without rows has none.
template <bool kAdds>
__device__ int sort_by_token(Found& found, const Tokens& tokens, int count) {
  constexpr int kToken =
      1 << 16;  // Tokens are counted in the upper half of a word, rows in the lower one.
  static_assert(kMostFound < kToken);
  const int v = static_cast<int>(threadIdx.x);
  found.ends[v] = 0;
  __syncthreads();
  for (int f = v; f < count; f += kBlock) atomicAdd(&found.ends[found.place[f]], 1);
  __syncthreads();
  const bool has_result = kAdds ? found.ends[v] > 0 : v < tokens.count;
  const int own = found.ends[v] + (has_result ? kToken : 0);
  int sum = own;  // The sum of the lanes up to this one.
#pragma unroll
  for (int off = 1; off < kWarp; off *= 2) {
    const int before = __shfl_up_sync(kAllLanes, sum, off);
    if (lane_index() >= off) sum += before;
  }
  if (lane_index() == kWarp - 1) found.counts[warp_index()] = sum;
  __syncthreads();
  int all = 0;
#pragma unroll
  for (int w = 0; w < kBlockWarps; ++w) {
    sum += w < warp_index() ? found.counts[w] : 0;
    all += found.counts[w];
  }
  found.ends[v] = (sum - own) % kToken;  // The begin of the token's rows, later their end.
  if (has_result) found.places[(sum - own) / kToken] = static_cast<std::uint16_t>(v);
  __syncthreads();
  if (warp_index() != 0) return all / kToken;
  for (int first = 0; first < count; first += kWarp) {
    const int f = first + lane_index();
    const int place = f < count ? found.place[f] : kMostTokens;
    const std::uint32_t same = __match_any_sync(kAllLanes, place);
    const int rank = __popc(same & ((1u << lane_index()) - 1));
    const int begin = f < count ? found.ends[place] : 0;
    __syncwarp();
    if (f < count) {
      found.rows[begin + rank] = found.row[f];
      if (rank == 0) found.ends[place] = begin + __popc(same);
    }
    __syncwarp();
  }
  return all / kToken;
}

template <class T>
__device__ __forceinline__ void load_four(float (&to)[4], const T* from, std::int64_t count,
                                          bool wide) {
  if constexpr (std::is_same_v<T, bf16>) {
    const Vec4 q = wide && count >= 4 ? *reinterpret_cast<const Vec4*>(from) : Vec4{};
#pragma unroll
    for (int c = 0; c < 4; ++c)
      to[c] = wide && count >= 4 ? q[c] : c < count ? load(from[c]) : 0.0f;
  } else {
    const float4 q = wide && count >= 4 ? vec4_of(from, 0) : float4{};
#pragma unroll
    for (int c = 0; c < 4; ++c)
      to[c] = wide && count >= 4 ? part(q, c) : c < count ? from[c] : 0.0f;
  }
}

// The token's row of the result: in the accumulator, or in the microbatch's gradient.
template <bool kAdds, class T>
__device__ __forceinline__ float* result_of(const EmbeddingBackward<T>& op, std::int64_t token,
                                            std::int64_t k) {
  return kAdds ? &at(op.acc, token, k) : &at(op.dweight, token, k);
}

// Prefetches what will be added into the L2 cache, so that no row waits for memory: all rows of dy
// at once, and the rows of the result a few tokens ahead, since the cache does not hold both.
__device__ __forceinline__ void fetch_line(const void* line) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
}
template <class T>
__device__ __forceinline__ void fetch_rows(const EmbeddingBackward<T>& op, const Found& found,
                                           int count) {
  constexpr int kLine = 128 / sizeof(T), kLines = kColumns / kLine;
  const std::int64_t k = blockIdx.y * kColumns + static_cast<int>(threadIdx.x) % kLines * kLine;
  if (k >= op.dy.cols) return;
  for (int f = static_cast<int>(threadIdx.x) / kLines; f < count; f += kBlock / kLines) {
    fetch_line(&at(op.dy, found.row[f], k));
  }
}
inline constexpr int kFetched = 4;  // Tokens that are prefetched ahead.
template <class T>
__device__ __forceinline__ void fetch_result(const EmbeddingBackward<T>& op, const Found& found,
                                             const Tokens& tokens, int j) {
  constexpr int kLine = 128 / sizeof(float), kLines = kColumns / kLine;
  const int line = static_cast<int>(threadIdx.x) % (kColumns / 4);
  const std::int64_t k = blockIdx.y * kColumns + line * kLine;
  if (line < kLines && k < op.dy.cols) fetch_line(&at(op.acc, tokens.at(found.places[j]), k));
}

// Four neighbours as they are stored.
__device__ __forceinline__ Vec4 stored_four(const bf16* from) {
  return *reinterpret_cast<const Vec4*>(from);
}
__device__ __forceinline__ float4 stored_four(const float* from) { return vec4_of(from, 0); }
__device__ __forceinline__ float element(const Vec4& q, int c) { return q[c]; }
__device__ __forceinline__ float element(const float4& q, int c) { return part(q, c); }

// sum = add(sum, drop'(dy)) over the given rows of dy in order, in the four columns from k on, of
// which `count` exist. kPlain: all fours are whole and aligned, and nothing is dropped.
template <bool kPlain, class T>
__device__ __forceinline__ void add_rows(const EmbeddingBackward<T>& op, const std::int32_t* rows,
                                         int many, int k, int count, float (&sum)[4]) {
  constexpr int kMost = 32 / sizeof(T);
  const T* const dy = op.dy.data + k;
  // Loads kRows rows before the first of them is added.
  const auto take = [&]<int kRows>() {
    if constexpr (kPlain) {
      decltype(stored_four(dy)) x[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) x[r] = stored_four(dy + rows[r] * op.dy.pitch);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[c] = add(sum[c], element(x[r], c));
      }
    } else {
      for (int r = 0; r < kRows; ++r) {
        float x[4];
        load_four(x, dy + rows[r] * op.dy.pitch, count, false);
        drop_some(op, rows[r], k, x);
        for (int c = 0; c < 4; ++c) sum[c] = add(sum[c], x[c]);
      }
    }
    rows += kRows;
    many -= kRows;
  };
  while (many >= kMost) take.template operator()<kMost>();
  if (many >= 8) take.template operator()<8>();
  if (many >= 4) take.template operator()<4>();
  if (many >= 2) take.template operator()<2>();
  if (many >= 1) take.template operator()<1>();
}

// Writes the token's row of the result, which no other thread touches. `before` is the accumulator.
template <bool kPlain, bool kAdds, class T>
__device__ __forceinline__ void put_sum(const EmbeddingBackward<T>& op, float* to,
                                        const float (&before)[4], int count,
                                        const float (&sum)[4]) {
  float g[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) g[c] = kAdds ? add(before[c], add(sum[c], 0.0f)) : add(sum[c], 0.0f);
  if constexpr (kPlain) {
    store_16(to, bits(g[0]), bits(g[1]), bits(g[2]), bits(g[3]));
  } else {
    for (int c = 0; c < 4 && c < count; ++c) to[c] = g[c];
  }
}

// Sums the rows of the block's `many` tokens, four columns per thread.
inline constexpr int kTogether = kColumns / 4;  // Threads that share a token.
inline constexpr int kSharers = kBlock / kTogether;
template <bool kPlain, bool kAdds, class T>
__device__ void add_found(const EmbeddingBackward<T>& op, const Found& found, const Tokens& tokens,
                          int many, int k, int count) {
  const int sharer = static_cast<int>(threadIdx.x) / kTogether;
  if (kAdds) {
    for (int j = sharer; j < ::min(many, kFetched * kSharers); j += kSharers)
      fetch_result(op, found, tokens, j);
  }
  for (int j = sharer; j < many; j += kSharers) {
    if (kAdds && j + kFetched * kSharers < many)
      fetch_result(op, found, tokens, j + kFetched * kSharers);
    const int p = found.places[j];
    const int begin = p == 0 ? 0 : found.ends[p - 1];
    float* const to = result_of<kAdds>(op, tokens.at(p), k);
    float before[4] = {}, sum[4] = {};
    if (kAdds) load_four(before, to, count, kPlain);
    add_rows<kPlain>(op, found.rows + begin, found.ends[p] - begin, k, count, sum);
    put_sum<kPlain, kAdds>(op, to, before, count, sum);
  }
}

// The same where the tokens have more rows than Found holds: one token at a time, and as many rows
// as one search finds.
template <bool kPlain, bool kAdds, class T>
__device__ void add_one_by_one(const EmbeddingBackward<T>& op, Found& found, const Tokens& tokens,
                               int k, int count) {
  const int rows = static_cast<int>(op.dy.rows);
  const bool adds = static_cast<int>(threadIdx.x) < kTogether && count > 0;
  for (int p = 0; p < tokens.count; ++p) {
    const Tokens one = {static_cast<std::int32_t>(tokens.at(p)), 31, 1};
    float before[4] = {}, sum[4] = {};
    int all = 0;
    for (int first = 0; first < rows; first += kSearched) {
      __syncthreads();  // The previous rows have been added.
      const int many = find(found, op, first, one, 0);
      __syncthreads();  // All threads have written what they found.
      if (adds) add_rows<kPlain>(op, found.row, many, k, count, sum);
      all += many;
    }
    if (!adds || (kAdds && all == 0)) continue;
    float* const to = result_of<kAdds>(op, tokens.at(p), k);
    if (kAdds) load_four(before, to, count, kPlain);
    put_sum<kPlain, kAdds>(op, to, before, count, sum);
  }
}

// Grid: (first token, columns).
template <bool kPlain, bool kAdds, class T>
__global__ void __launch_bounds__(kBlock, 2)
    embedding_backward(EmbeddingBackward<T> op, int vocabulary, int shift) {
  pdl_begin();
  extern __shared__ __align__(16) std::byte memory[];
  Found& found = *reinterpret_cast<Found*>(memory);
  const int first_token = static_cast<int>(blockIdx.x);
  const Tokens tokens = {first_token, shift,
                         (vocabulary - first_token + (1 << shift) - 1) >> shift};
  const int k =
      static_cast<int>(blockIdx.y) * kColumns + static_cast<int>(threadIdx.x) % kTogether * 4;
  const int columns = static_cast<int>(op.dy.cols) - k;  // At most so many exist for this thread.
  const int rows = static_cast<int>(op.dy.rows);
  int count = 0;
  for (int first = 0; first < rows; first += kSearched) {
    if (count > kMostFound - kSearched)
      return add_one_by_one<kPlain, kAdds>(op, found, tokens, k, columns);
    count = find(found, op, first, tokens, count);
  }
  __syncthreads();  // All threads have written what they found.
  fetch_rows(op, found, count);
  const int many = sort_by_token<kAdds>(found, tokens, count);
  __syncthreads();
  if (columns > 0) add_found<kPlain, kAdds>(op, found, tokens, many, k, columns);
}

// Returns the shift for blocks that begin at the tokens 0 .. 2^shift - 1: some 256 blocks, or more
// if they would have too many tokens each.
int token_shift(std::int64_t tokens, std::int64_t columns) {
  int shift = 0;
  while ((columns << shift) < 256 || (tokens >> shift) >= kMostTokens) ++shift;
  while (shift > 0 && (std::int64_t{1} << shift) > tokens) --shift;
  return shift;
}

}  // namespace

template <class T>
void run(CudaQueue queue, const EmbeddingForward<T>& op) {
  launch_vec8(queue, op.y.rows, op.y.cols, embedding_forward<T>, op,
              all_vectorizable(op.weight, op.y));
}
template <class T>
void run(CudaQueue queue, const EmbeddingBackward<T>& op) {
  const std::int64_t vocabulary = op.acc ? op.acc.rows : op.dweight.rows;
  const unsigned columns = blocks_for(op.dy.cols, kColumns);
  const int shift = token_shift(vocabulary, columns);
  const bool moves_16 =
      op.acc ? all_vectorizable(op.dy, op.acc) : all_vectorizable(op.dy, op.dweight);
  const bool plain = moves_16 && op.dy.cols % 4 == 0 && !op.dropout.active;
  const auto kernel =
      plain    ? op.acc ? embedding_backward<true, true, T> : embedding_backward<true, false, T>
         : op.acc ? embedding_backward<false, true, T>
               : embedding_backward<false, false, T>;
  cuda_launch_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(sizeof(Found))));
  launch(queue, dim3(1u << shift, columns), dim3(kBlock),
         {.shared_bytes = sizeof(Found), .overlaps = true}, kernel, op,
         static_cast<int>(vocabulary), shift);
}
template void run(CudaQueue, const EmbeddingForward<float>&);
template void run(CudaQueue, const EmbeddingForward<bf16>&);
template void run(CudaQueue, const EmbeddingBackward<float>&);
template void run(CudaQueue, const EmbeddingBackward<bf16>&);

}  // namespace lockstep
