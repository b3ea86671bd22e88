#include "kernels/cuda/mamba/scan_backward_bf16.cuh"
#include "kernels/cuda/mamba/scan_tiles_backward.cuh"

namespace lockstep {
namespace {

// Computes dS at the end of each chunk, as chunk_states does but from the last chunk of a document
// to the first.
template <class T>
__global__ void __launch_bounds__(kThreads, 4) chunk_state_gradients(ScanBackward<T> op) {
  pdl_begin();
  __shared__ Decay decay;
  if (!begins_document(op, blockIdx.x)) return;
  const int head = static_cast<int>(blockIdx.y);
  const int width = head_rows(op);
  const int element = static_cast<int>(blockIdx.z) * kThreads + static_cast<int>(threadIdx.x);
  const bool inside = element < op.state * width;
  const int n = element / width;
  const int p = element % width;
  std::int64_t index = blockIdx.x;
  while (continues(op, index)) ++index;
  float ds = 0.0f;
  for (;; --index) {
    if (inside) at(op.dstates, index, state_column(op, head) + element) = ds;
    if (index == static_cast<std::int64_t>(blockIdx.x)) return;
    const Chunk chunk = chunk_at(op, index);
    const float decay_of_chunk = fill(decay, op, chunk, head);
    if (!inside) continue;
    const std::int64_t c = c_column(op, group_of(op, head)) + n;
    float grown = 0.0f;
    for (int i = 0; i < chunk.rows; ++i) {
      grown = fma(load(at(op.xbc, chunk.start + i, c)), load(dye_of(op, chunk, head, i, p, decay)),
                  grown);
    }
    ds = fma(decay_of_chunk, ds, add(grown, 0.0f));
  }
}

// Fills M of columns [first, first + columns) for every i >= j, by the whole block: m[j -
// first][i].
template <class T>
__device__ void fill_columns(float (&m)[kRowTile][kChunk], const ScanBackward<T>& op,
                             const Chunk& chunk, int head, int first, int columns,
                             const Decay& decay) {
  const int below = chunk.rows - first;
  for (int pair = static_cast<int>(threadIdx.x); pair < columns * below; pair += kThreads) {
    const int j = pair / below;
    const int i = first + pair % below;
    if (i >= first + j) m[j][i] = mixing<T>(op, chunk, head, i, first + j, decay);
  }
}
// t_j[p]
template <class T>
__device__ float from_state_gradient(const ScanBackward<T>& op, const Chunk& chunk, int head, int j,
                                     int p) {
  const int width = head_rows(op);
  const float* const ds = &at(op.dstates, chunk.index, state_column(op, head));
  const T* const b = &at(op.xbc, chunk.start + j, b_column(op, group_of(op, head)));
  float t = 0.0f;
  for (int n = 0; n < op.state; ++n) t = fma(load(b[n]), load(st<T>(ds[n * width + p])), t);
  return add(t, 0.0f);
}
// R128 over p of fma(a[p], b[p], acc), with both in the lanes' order of R128: a head has at most
// 128 channels.
__device__ float r128_of_lanes(const float (&a)[4], const float (&b)[4], int width) {
  return r128(width, [&](std::int64_t p, float acc) {
    const int c = static_cast<int>(p) - 4 * lane_index();
    return fma(c == 0   ? a[0]
               : c == 1 ? a[1]
               : c == 2 ? a[2]
                        : a[3],
               c == 0   ? b[0]
               : c == 1 ? b[1]
               : c == 2 ? b[2]
                        : b[3],
               acc);
  });
}

// Computes dx, and g, h, q of each row. One block per (chunk, head, 16 rows), one warp per row;
// lane l has channels 4l .. 4l+3.
template <class T>
__global__ void __launch_bounds__(kThreads) scan_backward_input(ScanBackward<T> op) {
  pdl_begin();
  __shared__ Decay decay;
  __shared__ float m[kRowTile][kChunk];
  const Chunk chunk = chunk_at(op, blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.z) * kRowTile;
  if (first >= chunk.rows) return;
  const int rows = static_cast<int>(smaller(kRowTile, chunk.rows - first));
  const int width = head_rows(op);
  const int own = 4 * lane_index();
  fill(decay, op, chunk, head);

  fill_rows<T>(m, op, chunk, head, first, rows, decay);
  __syncthreads();
  for (int row = warp_index(); row < rows; row += kWarps) {
    const int i = first + row;
    float y[4] = {};
    float dy[4] = {};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (own + c >= width) continue;
      y[c] = scan_row<T>(op, chunk, head, i, own + c, m[row], decay);
      dy[c] = dy_of(op, chunk, head, i, own + c);
    }
    const float h = r128_of_lanes(dy, y, width);
    if (lane_index() == 0) row_term(op, chunk.start + i, kH, head) = h;
  }
  __syncthreads();

  fill_columns(m, op, chunk, head, first, rows, decay);
  __syncthreads();
  const float d = at(op.d, 0, head);
  for (int row = warp_index(); row < rows; row += kWarps) {
    const int j = first + row;
    float x[4] = {};
    float xa[4] = {};
    float t[4] = {};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int p = own + c;
      if (p >= width) continue;
      x[c] = x_of(op, chunk, head, j, p);
      t[c] = from_state_gradient(op, chunk, head, j, p);
      float a = mul(t[c], decay.r[j]);
      for (int i = j; i < chunk.rows; ++i) a = fma(m[row][i], dy_of(op, chunk, head, i, p), a);
      xa[c] = add(a, 0.0f);
      const float dx = fma(d, dy_of(op, chunk, head, j, p), mul(xa[c], decay.dt[j]));
      at(op.dxbc, chunk.start + j, x_column(op, head) + p) = st<T>(dx);
    }
    const float g = r128_of_lanes(x, xa, width);
    const float q = r128_of_lanes(x, t, width);
    if (lane_index() == 0) {
      row_term(op, chunk.start + j, kG, head) = g;
      row_term(op, chunk.start + j, kQ, head) = q;
    }
  }
}

// Computes d(dt) and the parameters' per-row terms. One block per (chunk, head), one thread per
// row.
template <class T>
__global__ void __launch_bounds__(kThreads) scan_backward_rates(ScanBackward<T> op) {
  pdl_begin();
  __shared__ Decay decay;
  __shared__ float q[kChunk];
  __shared__ float dcs[kChunk];
  __shared__ float s[kChunk];
  const Chunk chunk = chunk_at(op, blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  if (chunk.rows == 0) return;
  const int width = head_rows(op);
  const int j = static_cast<int>(threadIdx.x);
  const std::int64_t row = chunk.start + j;
  const float decay_of_chunk = fill(decay, op, chunk, head);
  const float* const state = &at(op.states, chunk.index, state_column(op, head));
  const float* const dstate = &at(op.dstates, chunk.index, state_column(op, head));
  const float ss = r1024(static_cast<std::int64_t>(op.state) * width,
                         [&](std::int64_t e, float acc) { return fma(dstate[e], state[e], acc); });
  float g = 0.0f;
  if (j < chunk.rows) {
    g = row_term(op, row, kG, head);
    q[j] = row_term(op, row, kQ, head);
    dcs[j] = sub(row_term(op, row, kH, head), mul(decay.dt[j], g));
  }
  __syncthreads();
  if (j == 0) {
    const int last = chunk.rows - 1;
    float ex = 0.0f;
    for (int k = 0; k <= last; ++k) ex = fma(decay.w(k), q[k], ex);
    dcs[last] = add(dcs[last], fma(decay_of_chunk, ss, add(ex, 0.0f)));
    float sum = 0.0f;
    for (int k = last; k >= 0; --k) {
      sum = add(sum, dcs[k]);
      s[k] = sum;
    }
  }
  __syncthreads();
  if (j < chunk.rows) {
    const float rate = rate_of(op, head);
    const float z = mul(fma(rate, s[j], g), sigmoid(raw_dt(op, row, head)));
    store_rate(op, row, head, z);
    row_term(op, row, kDtBias, head) = z;
    row_term(op, row, kALog, head) = mul(mul(decay.dt[j], s[j]), rate);
  }
  for (int i = warp_index(); i < chunk.rows; i += kWarps) {
    const float dd = r128(width, [&](std::int64_t p, float acc) {
      return fma(dy_of(op, chunk, head, i, static_cast<int>(p)),
                 x_of(op, chunk, head, i, static_cast<int>(p)), acc);
    });
    if (lane_index() == 0) row_term(op, chunk.start + i, kD, head) = dd;
  }
}

template <class T>
__global__ void scan_backward_parameters(ScanBackward<T> op) {
  pdl_begin();
  const std::int64_t column = own_column();
  const bool inside = column < 3ll * op.heads;
  const float sum = column_sum(op.row_document.cols, inside, [&](std::int64_t i, float p) {
    return at(op.row_document, 0, i) < 0 ? p : add(p, at(op.rows, i, column));
  });
  if (!inside || warp_index() != 0) return;
  store_scan_parameter(op, column, sum);
}

// The head's term of KK_ij: mul(DOT over P of dy_i, xd_j, Ld_ij).
template <class T>
__device__ float pair_gradient(const ScanBackward<T>& op, const Chunk& chunk, int head, int i,
                               int j, const Decay& decay) {
  const int width = head_rows(op);
  float c = 0.0f;
  for (int p = 0; p < width; ++p) {
    c = fma(dy_of(op, chunk, head, i, p), load(x_scaled<T>(op, chunk, head, j, p, decay.dt[j])), c);
  }
  return mul(add(c, 0.0f), decay.between(i, j));
}

// Computes dC (a tile of rows i, with rows j <= i) or dB (a tile of rows j, with rows i >= j). One
// block per (chunk, group, 16 rows). Each thread owns the same pairs and outputs for every head,
// whose sums grow in shared memory.
template <class T, bool of_c>
__global__ void __launch_bounds__(kThreads) scan_backward_group(ScanBackward<T> op) {
  pdl_begin();
  __shared__ Decay decay;
  __shared__ float kk[kRowTile][kChunk];
  __shared__ float sum[kRowTile][kState];
  const Chunk chunk = chunk_at(op, blockIdx.x);
  const int group = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.z) * kRowTile;
  if (first >= chunk.rows) return;
  const int rows = static_cast<int>(smaller(kRowTile, chunk.rows - first));
  const int width = head_rows(op);
  const int heads = op.heads / op.groups;
  for (int head = group * heads; head < (group + 1) * heads; ++head) {
    fill(decay, op, chunk, head);
    const bool is_first = head == group * heads;
    for (int pair = static_cast<int>(threadIdx.x); pair < rows * chunk.rows; pair += kThreads) {
      const int own = pair / chunk.rows;
      const int other = pair % chunk.rows;
      const int i = of_c ? first + own : other;
      const int j = of_c ? other : first + own;
      if (j > i) continue;
      kk[own][other] =
          add(is_first ? 0.0f : kk[own][other], pair_gradient(op, chunk, head, i, j, decay));
    }
    const float* const state =
        &at(of_c ? op.states : op.dstates, chunk.index, state_column(op, head));
    for (int out = static_cast<int>(threadIdx.x); out < rows * op.state; out += kThreads) {
      const int own = out / op.state;
      const int n = out % op.state;
      const int row = first + own;
      float a = is_first ? 0.0f : sum[own][n];
      for (int p = 0; p < width; ++p) {
        const T factor = of_c ? dye_of(op, chunk, head, row, p, decay)
                              : x_scaled<T>(op, chunk, head, row, p, decay.w(row));
        a = fma(load(factor), load(st<T>(state[n * width + p])), a);
      }
      sum[own][n] = a;
    }
  }
  __syncthreads();
  const std::int64_t from = of_c ? b_column(op, group) : c_column(op, group);
  const std::int64_t to = of_c ? c_column(op, group) : b_column(op, group);
  for (int out = static_cast<int>(threadIdx.x); out < rows * op.state; out += kThreads) {
    const int own = out / op.state;
    const int n = out % op.state;
    const int begin = of_c ? 0 : first + own;
    const int end = of_c ? first + own + 1 : chunk.rows;
    float a = sum[own][n];
    for (int other = begin; other < end; ++other) {
      const float k = load(st<T>(add(kk[own][other], 0.0f)));
      a = fma(k, load(at(op.xbc, chunk.start + other, from + n)), a);
    }
    at(op.dxbc, chunk.start + first + own, to + n) = st<T>(add(a, 0.0f));
  }
}

}  // namespace

template <class T>
void run(CudaQueue queue, const ScanBackward<T>& op) {
  const dim3 block(kThreads);
  const dim3 chunk_grid(static_cast<unsigned>(op.chunk_document.cols),
                        static_cast<unsigned>(op.heads));
  if constexpr (std::is_same_v<T, bf16>) {
    if (runs_in_tiles(op)) return run_in_tiles(queue, op);
  }
  clear_rows_of_no_document(queue, op.row_document, op.dxbc);
  clear_rows_of_no_document(queue, op.row_document, op.ddt);
  if constexpr (std::is_same_v<T, bf16>) {
    launch(queue, state_tile_grid(op), block, kPdl, chunk_states_bf16<ScanBackward<bf16>>, op);
    launch(queue, state_tile_grid(op), block, kPdl, chunk_state_gradients_bf16, op);
    launch(queue, tile_grid(op, op.heads, kSide), block, kPdl, scan_backward_input_bf16, op);
    launch(queue, chunk_grid, block, kPdl, scan_backward_rates<T>, op);
    launch(queue, tile_grid(op, op.groups, kSide), block, kPdl, scan_backward_group_bf16<true>, op);
    launch(queue, tile_grid(op, op.groups, kSide), block, kPdl, scan_backward_group_bf16<false>,
           op);
  } else {
    launch(queue, state_grid(op), block, kPdl, chunk_states<T, ScanBackward<T>>, op);
    launch(queue, state_grid(op), block, kPdl, chunk_state_gradients<T>, op);
    launch(queue, tile_grid(op, op.heads), block, kPdl, scan_backward_input<T>, op);
    launch(queue, chunk_grid, block, kPdl, scan_backward_rates<T>, op);
    launch(queue, tile_grid(op, op.groups), block, kPdl, scan_backward_group<T, true>, op);
    launch(queue, tile_grid(op, op.groups), block, kPdl, scan_backward_group<T, false>, op);
  }
  launch(queue, column_grid(3ll * op.heads), block, kPdl, scan_backward_parameters<T>, op);
}
template void run(CudaQueue, const ScanBackward<float>&);
template void run(CudaQueue, const ScanBackward<bf16>&);

}  // namespace lockstep
