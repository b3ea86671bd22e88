#include <algorithm>

#include "kernels/core/row_segments.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/fp8_convert.cuh"
#include "kernels/cuda/common/fragment.cuh"
#include "kernels/cuda/common/raise_amax.cuh"
#include "kernels/ops/fp8.h"

namespace lockstep {
namespace {

// The segment of a row in use; -1 for any other row.
template <class Op>
__device__ std::int64_t used_segment(const Op& op, const RowSegments& segments, std::int64_t r) {
  if (op.row_document.data != nullptr && at(op.row_document, 0, r) < 0) return -1;
  return segments.of_row(r);
}
// Eight neighbours, from column c of row r on; those behind the row are +0.
__device__ Vec8 neighbours(const In<bf16>& x, std::int64_t r, std::int64_t c, bool aligned) {
  return load_vec8(&at(x, r, c), x.cols - c, aligned);
}
__device__ bf16 nth(const Vec8& all, int n) {
  return {static_cast<std::uint16_t>(all.pairs[n / 2] >> 16 * (n % 2))};
}

__global__ void fp8_clear_amax(Fp8ClearAmax op) {
  pdl_begin();
  const Element e = own_element(1, op.amax.cols);
  if (e.inside) at(op.amax, 0, e.col) = 0;
}

// A row per warp.
__global__ void __launch_bounds__(kThreads) fp8_amax_of_rows(Fp8Amax op) {
  pdl_begin();
  constexpr int kAtOnce = 4;  // Loads in flight.
  const std::int64_t r = warp_item();
  if (r >= op.x.rows) return;
  const std::int64_t segment = used_segment(op, segments_of(op, op.x.rows, op.amax.cols), r);
  if (segment < 0) return;
  const bool aligned = moves_vec8(op.x.data, op.x.pitch);
  StoredMagnitudes found;
  for (std::int64_t first = 8 * lane_index(); first < op.x.cols; first += kAtOnce * 8 * kWarp) {
    Vec8 all[kAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t c = first + i * 8 * kWarp;
      if (c < op.x.cols) all[i] = neighbours(op.x, r, c, aligned);
    }
#pragma unroll
    for (const Vec8& one : all) {
#pragma unroll
      for (const std::uint32_t pair : one.pairs) found.take(pair);
    }
  }
  raise_amax(&at(op.amax, 0, segment), found);
}

// One block.
template <class F>
__global__ void __launch_bounds__(kThreads) fp8_exponents(Fp8Exponent<F> op) {
  pdl_begin();
  const std::int64_t segments = op.k.cols;
  for (std::int64_t s = threadIdx.x; s < segments; s += kThreads) {
    const std::int32_t k = op.held.data != nullptr ? at(op.held, 0, s / (segments / op.held.cols))
                                                   : fp8_exponent<F>(at(op.amax, 0, s));
    at(op.k, 0, s) = k;
    at(op.scale, 0, s) = fp8_power(-k);
  }
  if (op.pending.data == nullptr) return;
  const std::int64_t own = segments / op.pending.cols;
  for (std::int64_t e = threadIdx.x; e < op.pending.cols; e += kThreads) {
    std::uint32_t most = at(op.pending, 0, e);
    for (std::int64_t s = e * own; s < (e + 1) * own; ++s) {
      const std::uint32_t word = at(op.amax, 0, s);
      most = word > most ? word : most;
    }
    at(op.pending, 0, e) = most;
  }
}

// One warp per operand.
template <class F>
__global__ void __launch_bounds__(kThreads) fp8_roll(Fp8Roll<F> op) {
  pdl_begin();
  const std::int64_t n = warp_item(), length = op.history.cols;
  if (n >= op.pending.cols) return;
  std::uint32_t pending = op.of_ranks.data == nullptr ? at(op.pending, 0, n) : 0;
  for (std::int64_t r = lane_index(); r < op.of_ranks.rows; r += kWarp) {
    const std::uint32_t word = at(op.of_ranks, r, n);
    pending = word > pending ? word : pending;
  }
  pending = __reduce_max_sync(0xffffffffu, pending);
  const std::int64_t place = op.state.data->step % static_cast<std::uint64_t>(length);
  std::uint32_t amax = pending;
  for (std::int64_t h = lane_index(); h < length && !op.most_recent; h += kWarp) {
    const std::uint32_t word = h == place ? pending : at(op.history, n, h);
    amax = word > amax ? word : amax;
  }
  amax = __reduce_max_sync(0xffffffffu, amax);
  if (lane_index() != 0) return;
  at(op.history, n, place) = pending;
  if (amax > 0 && fp8_amax_is_finite(amax))
    at(op.k, 0, n) = fp8_clamped<F>(fp8_exponent<F>(amax) - op.margin);
  at(op.pending, 0, n) = 0;
}

// Codes of eight neighbours: q(x, k) with factor = 2^k.
struct alignas(8) Codes8 {
  std::uint32_t words[2] = {};
};
template <class F>
__device__ __forceinline__ Codes8 codes_of(const Vec8& all, float factor) {
  Codes8 codes;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float first = mul(load(nth(all, 2 * n)), factor);
    const float second = mul(load(nth(all, 2 * n + 1)), factor);
    codes.words[n / 2] |= fp8_pair<F>(first, second) << 16 * (n % 2);
  }
  return codes;
}

// One thread per operand.
__global__ void __launch_bounds__(kThreads) fp8_amax_of_ranks(Fp8AmaxOfRanks op) {
  pdl_begin();
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (n >= op.amax.cols) return;
  std::uint32_t most = 0;
  for (std::int64_t r = 0; r < op.of_ranks.rows; ++r) {
    const std::uint32_t word = at(op.of_ranks, r, n);
    most = word > most ? word : most;
  }
  at(op.amax, 0, n) = most;
}

// Sixteen codes, written at once.
struct alignas(16) Codes16 {
  Codes8 halves[2];
};

// Sixteen codes of a row per thread.
template <class F>
__global__ void __launch_bounds__(kThreads) fp8_cast_rows(Fp8Cast<F> op) {
  pdl_begin();
  const Element e = own_element(op.codes.rows, op.codes.cols / kFp8Align);
  if (!e.inside) return;
  const RowSegments segments = segments_of(op, op.x.rows, op.k.cols);
  const bool aligned = moves_vec8(op.x.data, op.x.pitch);
  const std::int64_t segment = used_segment(op, segments, e.row);
  Codes16 codes;
  if (segment >= 0) {
    const float factor = fp8_power(at(op.k, 0, segment));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t c = e.col * kFp8Align + 8 * half;
      if (c < op.x.cols)
        codes.halves[half] = codes_of<F>(neighbours(op.x, e.row, c, aligned), factor);
    }
  }
  *reinterpret_cast<Codes16*>(&at(op.codes, e.row, e.col * kFp8Align)) = codes;
}

// Where a column of transposed codes comes from.
struct Source {
  std::int64_t segment = -1;  // -1: it holds code 00.
  std::int64_t row = 0;
};
template <class F>
__device__ Source source_of(const Fp8Cast<F>& op, const RowSegments& segments, std::int64_t matrix,
                            std::int64_t column) {
  Source from;
  if (!segments.listed()) {
    if (column < segments.size(matrix)) from = {matrix, segments.first(matrix) + column};
  } else {
    for (std::int64_t s = 0; s < segments.count; ++s) {
      if (column < segments.rows[s]) from = {s, segments.start[s] + column};
      if (column < fp8_padded(segments.rows[s])) break;
      column -= fp8_padded(segments.rows[s]);
    }
  }
  const bool used = from.segment >= 0 &&
                    (op.row_document.data == nullptr || at(op.row_document, 0, from.row) >= 0);
  return used ? from : Source{};
}

__device__ Codes16 sixteen(const std::uint8_t* from) {
  Codes16 codes;
#pragma unroll
  for (int n = 0; n < kFp8Align; ++n)
    codes.halves[n / 8].words[n / 4 % 2] |= static_cast<std::uint32_t>(from[n]) << 8 * (n % 4);
  return codes;
}

inline constexpr int kTransposed = 64;  // Rows and columns of a block's tile.

// A block reads 64 columns of 64 rows and writes 64 rows of 64 codes. blockIdx.z is the matrix of
// equal segments.
template <class F>
__global__ void __launch_bounds__(kThreads) fp8_cast_transposed(Fp8Cast<F> op) {
  pdl_begin();
  __shared__ std::uint8_t tile[kTransposed][kTransposed + 4];  // By column of x.
  const RowSegments segments = segments_of(op, op.x.rows, op.k.cols);
  const std::int64_t column0 = static_cast<std::int64_t>(blockIdx.x) * kTransposed;
  const std::int64_t c0 = static_cast<std::int64_t>(blockIdx.y) * kTransposed;
  for (int i = warp_index(); i < kTransposed; i += kWarps) {
    const Source from = source_of(op, segments, blockIdx.z, column0 + i);
    const float factor = from.segment >= 0 ? fp8_power(at(op.k, 0, from.segment)) : 0.0f;
    for (int c = lane_index(); c < kTransposed; c += kWarp) {
      const bool inside = from.segment >= 0 && c0 + c < op.x.cols;
      const float moved = inside ? mul(load(at(op.x, from.row, c0 + c)), factor) : 0.0f;
      tile[c][i] = static_cast<std::uint8_t>(fp8_pair<F>(moved, 0.0f));
    }
  }
  __syncthreads();
  const int c = static_cast<int>(threadIdx.x) / (kTransposed / kFp8Align);
  const int chunk = static_cast<int>(threadIdx.x) % (kTransposed / kFp8Align) * kFp8Align;
  if (c0 + c >= op.x.cols || column0 + chunk >= op.transposed.cols) return;
  const Codes16 codes = sixteen(&tile[c][chunk]);
  const std::int64_t row = blockIdx.z * op.x.cols + c0 + c;
  *reinterpret_cast<Codes16*>(&at(op.transposed, row, column0 + chunk)) = codes;
}
static_assert(kThreads == kTransposed * kTransposed / kFp8Align);

inline constexpr int kCastTile = 128;  // Rows and columns of a block's tile.

// One segment, both layouts: x is read once. A thread has eight columns of four rows at a time. In
// shared memory the codes of a column lie in words of four rows, and word w of column c is at
// w ^ 2 (c / 8), so that neither the writes nor the reads of a warp meet in a bank.
template <class F>
__global__ void __launch_bounds__(kThreads) fp8_cast_both(Fp8Cast<F> op) {
  pdl_begin();
  __shared__ std::uint32_t tile[kCastTile][kCastTile / 4];
  const bool aligned = moves_vec8(op.x.data, op.x.pitch);
  const float factor = fp8_power(at(op.k, 0, 0));
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.y) * kCastTile;
  const std::int64_t c0 = static_cast<std::int64_t>(blockIdx.x) * kCastTile;
  const int own = static_cast<int>(threadIdx.x) % 16;
  const std::int64_t c = c0 + 8 * own;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int group = static_cast<int>(threadIdx.x) / 16 + kCastTile / 8 * half;
    Codes8 codes[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int64_t r = row0 + 4 * group + i;
      const bool used =
          r < op.x.rows && (op.row_document.data == nullptr || at(op.row_document, 0, r) >= 0);
      if (used && c < op.x.cols) codes[i] = codes_of<F>(neighbours(op.x, r, c, aligned), factor);
      if (r < op.codes.rows && c < op.codes.cols)
        *reinterpret_cast<Codes8*>(&at(op.codes, r, c)) = codes[i];
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const std::uint32_t low = __byte_perm(codes[0].words[n / 4], codes[1].words[n / 4],
                                            static_cast<unsigned>(n % 4 | (n % 4 + 4) << 4));
      const std::uint32_t high = __byte_perm(codes[2].words[n / 4], codes[3].words[n / 4],
                                             static_cast<unsigned>(n % 4 | (n % 4 + 4) << 4));
      tile[8 * own + n][group ^ 2 * own] = __byte_perm(low, high, 0x5410);
    }
  }
  __syncthreads();
  constexpr int kChunks = kCastTile / kFp8Align;
#pragma unroll
  for (int i = 0; i < kCastTile * kChunks / kThreads; ++i) {
    const int e = static_cast<int>(threadIdx.x) + i * kThreads;
    const int column = e / kChunks, chunk = e % kChunks;
    const std::int64_t first = row0 + kFp8Align * chunk;
    if (c0 + column >= op.x.cols || first >= op.transposed.cols) continue;
    const auto pair = [&](int p) {
      return *reinterpret_cast<const Codes8*>(&tile[column][2 * (p ^ column / 8)]);
    };
    *reinterpret_cast<Codes16*>(&at(op.transposed, c0 + column, first)) =
        Codes16{{pair(2 * chunk), pair(2 * chunk + 1)}};
  }
}

// A block reads 64 columns of 64 rows of codes and writes 64 rows of 64. blockIdx.z is the matrix.
__global__ void __launch_bounds__(kThreads) fp8_transpose(Fp8Transpose op) {
  pdl_begin();
  __shared__ std::uint8_t tile[kTransposed][kTransposed + 4];  // By column of the codes.
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.x) * kTransposed;
  const std::int64_t c0 = static_cast<std::int64_t>(blockIdx.y) * kTransposed;
  for (int i = warp_index(); i < kTransposed; i += kWarps) {
    for (int c = lane_index(); c < kTransposed; c += kWarp) {
      const bool inside = row0 + i < op.rows && c0 + c < op.cols;
      const std::int64_t row = blockIdx.z * op.rows + row0 + i;
      tile[c][i] = inside ? at(op.codes, row, c0 + c).bits : std::uint8_t{0};
    }
  }
  __syncthreads();
  const int c = static_cast<int>(threadIdx.x) / (kTransposed / kFp8Align);
  const int chunk = static_cast<int>(threadIdx.x) % (kTransposed / kFp8Align) * kFp8Align;
  if (c0 + c >= op.cols || row0 + chunk >= op.transposed.cols) return;
  const std::int64_t row = blockIdx.z * op.cols + c0 + c;
  *reinterpret_cast<Codes16*>(&at(op.transposed, row, row0 + chunk)) = sixteen(&tile[c][chunk]);
}

}  // namespace

void run(CudaQueue queue, const Fp8ClearAmax& op) {
  launch_elements(queue, 1, op.amax.cols, fp8_clear_amax, op);
}
void run(CudaQueue queue, const Fp8Amax& op) {
  launch(queue, dim3(blocks_for(op.x.rows, kWarps)), dim3(kThreads), kPdl, fp8_amax_of_rows, op);
}
template <class F>
void run(CudaQueue queue, const Fp8Exponent<F>& op) {
  launch(queue, dim3(1), dim3(kThreads), kPdl, fp8_exponents<F>, op);
}
template <class F>
void run(CudaQueue queue, const Fp8Roll<F>& op) {
  launch(queue, dim3(blocks_for(op.pending.cols, kWarps)), dim3(kThreads), kPdl, fp8_roll<F>, op);
}
template <class F>
void run(CudaQueue queue, const Fp8Cast<F>& op) {
  if (op.codes && op.transposed && !op.rows && op.k.cols == 1) {
    const std::int64_t rows = std::max(op.codes.rows, op.transposed.cols);
    const dim3 grid(blocks_for(op.codes.cols, kCastTile), blocks_for(rows, kCastTile));
    return launch(queue, grid, dim3(kThreads), kPdl, fp8_cast_both<F>, op);
  }
  if (op.codes) {
    launch_elements(queue, op.codes.rows, op.codes.cols / kFp8Align, fp8_cast_rows<F>, op);
  }
  if (op.transposed) {
    const auto matrices = op.rows ? 1u : static_cast<unsigned>(op.k.cols);
    const dim3 grid(blocks_for(op.transposed.cols, kTransposed), blocks_for(op.x.cols, kTransposed),
                    matrices);
    launch(queue, grid, dim3(kThreads), kPdl, fp8_cast_transposed<F>, op);
  }
}
void run(CudaQueue queue, const Fp8Transpose& op) {
  const dim3 grid(blocks_for(op.transposed.cols, kTransposed), blocks_for(op.cols, kTransposed),
                  static_cast<unsigned>(op.matrices));
  launch(queue, grid, dim3(kThreads), kPdl, fp8_transpose, op);
}
void run(CudaQueue queue, const Fp8AmaxOfRanks& op) {
  launch(queue, dim3(blocks_for(op.amax.cols, kThreads)), dim3(kThreads), kPdl, fp8_amax_of_ranks,
         op);
}
template void run(CudaQueue, const Fp8Exponent<e4m3>&);
template void run(CudaQueue, const Fp8Exponent<e5m2>&);
template void run(CudaQueue, const Fp8Roll<e4m3>&);
template void run(CudaQueue, const Fp8Roll<e5m2>&);
template void run(CudaQueue, const Fp8Cast<e4m3>&);
template void run(CudaQueue, const Fp8Cast<e5m2>&);

}  // namespace lockstep
