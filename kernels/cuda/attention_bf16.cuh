// bf16 attention on the tensor core: a block of four warps owns 64 physical rows, a warp 16 of them. The rows may
// belong to several documents, which take their turns; rows of other documents are +0 then, and their results are
// dropped.
#pragma once

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/fragment.cuh"

namespace lockstep {

inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionThreads = kAttentionWarps * kWarp;
inline constexpr int kAttentionRows = 16 * kAttentionWarps;
inline constexpr int kKeyBlock = 128;  // KB of arithmetic.md 2.6: what m, l and o are rescaled by.
inline constexpr int kKeys = 64;       // Keys in shared memory for dQ, ...
inline constexpr int kQueries = 32;    // ... and queries for dK and dV, which need the registers for themselves.

// The rows [begin, end) of the microbatch belong to the block and to one document.
struct Segment {
  int begin;
  int end;
  int start;   // First row of the document.
  int length;  // Rows of the document.
};
// f(segment) for each document of the block's rows, in the same order in all threads.
template <class Op, class F>
__device__ void for_segments(const Op& op, F f) {
  const int first = static_cast<int>(blockIdx.x) * kAttentionRows;
  const int last = static_cast<int>(smaller(first + kAttentionRows, op.o.rows));
  for (int row = first; row < last;) {
    const std::int32_t document = at(op.row_document, 0, row);
    if (document < 0) {
      ++row;
      continue;
    }
    const int start = at(op.document_start, 0, document);
    const int length = at(op.document_length, 0, document);
    const int end = static_cast<int>(smaller(last, start + length));
    f(Segment{row, end, start, length});
    row = end;
  }
}

// A lane's two rows.
struct OwnRows {
  int row[2];
  int place[2];  // In the document.
  bool inside[2];
  bool any;  // Whether the warp has a row of the segment.

  __device__ explicit OwnRows(const Segment& segment) {
    const int first = static_cast<int>(blockIdx.x) * kAttentionRows + 16 * warp_index();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      row[h] = first + lane_group() + 8 * h;
      place[h] = row[h] - segment.start;
      inside[h] = row[h] >= segment.begin && row[h] < segment.end;
    }
    any = first < segment.end && first + 16 > segment.begin;
  }
};

// The warp's rows of one head as the left factor of dot products over the head's channels.
template <int kWidth>
struct OwnHead {
  std::uint32_t step[kWidth / kStep][4];

  __device__ OwnHead(const In<bf16>& from, std::int64_t column, int hd, const OwnRows& own) {
#pragma unroll
    for (int k = 0; k < kWidth / kStep; ++k) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int channel = kStep * k + 2 * lane_place() + 8 * (r / 2);
        const bool inside = own.inside[r % 2];
        const bf16* const head = from.data + own.row[r % 2] * from.pitch + column;
        const bf16 low = inside && channel < hd ? head[channel] : bf16{0};
        const bf16 high = inside && channel + 1 < hd ? head[channel + 1] : bf16{0};
        step[k][r] = pair(low, high);
      }
    }
  }
};

// Rows of one head in shared memory. Channels past the head and rows past the document are +0.
template <int kRows, int kWidth>
struct HeadTile {
  static constexpr int kPitch = kWidth + 8;
  alignas(16) bf16 row[kRows][kPitch];

  __device__ void fill(const In<bf16>& from, std::int64_t first, int rows, std::int64_t column, int hd) {
    const bf16* const head = from.data + first * from.pitch + column;
    const bool aligned = moves_eights(head, from.pitch);
    for (int e = static_cast<int>(threadIdx.x); e < kRows * kWidth / 8; e += kAttentionThreads) {
      const int i = e / (kWidth / 8);
      const int c = e % (kWidth / 8) * 8;
      Eight eight = {};
      if (i < rows && c < hd) eight = load_eight(head + i * from.pitch + c, hd - c, aligned);
      *reinterpret_cast<Eight*>(&row[i][c]) = eight;
    }
  }
  // c[m, n] = DOT over the channels of own row m and row n0 + n of the tile.
  __device__ void dot(float (&c)[4], const OwnHead<kWidth>& own, int n0) const {
#pragma unroll
    for (float& x : c) x = 0.0f;
#pragma unroll
    for (int k = 0; k < kWidth / kStep; ++k) {
      std::uint32_t b[2];
      take_b(b, AlongK<kPitch>{row}, n0, kStep * k);
      fda16(c, own.step[k], b);
    }
  }
  // The same with own rows m0 .. m0 + 15 of another tile.
  template <int kOwn>
  __device__ void dot(float (&c)[4], const HeadTile<kOwn, kWidth>& own, int m0, int n0) const {
#pragma unroll
    for (float& x : c) x = 0.0f;
#pragma unroll
    for (int k = 0; k < kWidth / kStep; ++k) {
      std::uint32_t a[4];
      std::uint32_t b[2];
      take_a(a, AlongK<kPitch>{own.row}, m0, kStep * k);
      take_b(b, AlongK<kPitch>{row}, n0, kStep * k);
      fda16(c, a, b);
    }
  }
  // sum[m, e] continues with weights a[m, k] times row k0 + k, channel e.
  __device__ void extend(float (&sum)[kWidth / 8][4], const std::uint32_t (&a)[4], int k0) const {
#pragma unroll
    for (int x = 0; x < kWidth / 8; ++x) {
      std::uint32_t b[2];
      take_b(b, AcrossK<kPitch>{row}, 8 * x, k0);
      fda16(sum[x], a, b);
    }
  }
};

// to[e] = st(f(add(sum[e], +0))) in the lane's rows of the segment.
template <int kWidth, class F>
__device__ void store_head(const Out<bf16>& to, std::int64_t column, int hd, const OwnRows& own,
                           const float (&sum)[kWidth / 8][4], F f) {
#pragma unroll
  for (int x = 0; x < kWidth / 8; ++x) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int h = e / 2;
      const int channel = 8 * x + 2 * lane_place() + e % 2;
      if (own.inside[h] && channel < hd) {
        at(to, own.row[h], column + channel) = st<bf16>(f(h, add(sum[x][e], 0.0f)));
      }
    }
  }
}

// The four lanes of a row.
__device__ __forceinline__ float row_max(float m) {
  m = max(m, __shfl_xor_sync(kAllLanes, m, 1));
  return max(m, __shfl_xor_sync(kAllLanes, m, 2));
}
// Lane c of a row holds l_c.
__device__ __forceinline__ float row_sum(float l) {
  l = add(l, __shfl_xor_sync(kAllLanes, l, 1));
  return add(l, __shfl_xor_sync(kAllLanes, l, 2));
}

// The running softmax of a warp's rows.
template <int kWidth>
struct Softmax {
  float m[2] = {neg(infinity()), neg(infinity())};
  float l[2] = {};  // The lane's l_c: the columns 2c and 2c + 1 of every eight keys are its own.
  float o[kWidth / 8][4] = {};

  // `s`: the products with the keys j0 .. j0 + 127, of which `keys` exist; p in the end.
  __device__ void advance(float (&s)[kKeyBlock / 8][4], int j0, float scale, const OwnRows& own) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = m[h];
#pragma unroll
      for (int x = 0; x < kKeyBlock / 8; ++x) {
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          s[x][e] = mul(s[x][e], scale);
          if (visible(own, h, j0, x, e)) largest = max(largest, s[x][e]);
        }
      }
      const float next = add(row_max(largest), 0.0f);
      const float al = expn(sub(m[h], next));
      m[h] = next;
      l[h] = mul(l[h], al);
#pragma unroll
      for (int x = 0; x < kKeyBlock / 8; ++x) {
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          s[x][e] = visible(own, h, j0, x, e) ? expn(sub(s[x][e], next)) : 0.0f;
          l[h] = add(l[h], s[x][e]);
        }
      }
#pragma unroll
      for (int x = 0; x < kWidth / 8; ++x) {
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; ++e) o[x][e] = mul(o[x][e], al);
      }
    }
  }

 private:
  static __device__ bool visible(const OwnRows& own, int h, int j0, int x, int e) {
    return own.inside[h] && j0 + 8 * x + 2 * lane_place() + e % 2 <= own.place[h];
  }
};

// Grid: (64 rows, head).
template <int kWidth>
__global__ void __launch_bounds__(kAttentionThreads) attention_forward_bf16(AttentionForward<bf16> op) {
  __shared__ HeadTile<kKeyBlock, kWidth> tile;  // Keys, then values.
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (op.heads / op.kv_heads);
  const int hd = op.head_dim;
  for_segments(op, [&](const Segment& segment) {
    const OwnRows own(segment);
    const OwnHead<kWidth> q(op.qkv, q_column(op, head), hd, own);
    Softmax<kWidth> softmax;
    const int seen = segment.end - segment.start;  // Keys that some row of the segment sees.
    for (int j0 = 0; j0 < seen; j0 += kKeyBlock) {
      const int keys = seen - j0;
      __syncthreads();  // The last values have been used.
      tile.fill(op.qkv, segment.start + j0, keys, k_column(op, kv_head), hd);
      __syncthreads();
      float s[kKeyBlock / 8][4] = {};
      if (own.any) {
#pragma unroll
        for (int x = 0; x < kKeyBlock / 8; ++x) {
          if (8 * x < keys) tile.dot(s[x], q, 8 * x);
        }
        softmax.advance(s, j0, scale_of(hd), own);
      }
      __syncthreads();  // The keys have been used.
      tile.fill(op.qkv, segment.start + j0, keys, v_column(op, kv_head), hd);
      __syncthreads();
      if (!own.any) continue;
#pragma unroll
      for (int x = 0; x < kKeyBlock / kStep; ++x) {
        if (kStep * x >= keys) continue;
        std::uint32_t p[4];
        take_a(p, s[2 * x], s[2 * x + 1]);
        tile.extend(softmax.o, p, kStep * x);
      }
    }
    if (!own.any) return;
    float inverse[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float l = add(row_sum(softmax.l[h]), 0.0f);
      inverse[h] = div(1.0f, l);
      if (own.inside[h] && lane_place() == 0) at(op.lse, own.row[h], head) = add(softmax.m[h], log(l));
    }
    store_head<kWidth>(op.o, q_column(op, head), hd, own, softmax.o,
                       [&](int h, float x) { return mul(x, inverse[h]); });
  });
}

// Sixteen partners of the warp's rows: p and ds of each pair, as the left factor of the next product.
struct PairSteps {
  std::uint32_t p[4];
  std::uint32_t ds[4];
};
// `s`: DOT of q and k, `dp`: DOT of dO and v. pair_at(h, n, lse, delta) says whether the pair of the lane's row h and
// partner n is visible, and fetches what belongs to its query.
template <class PairAt>
__device__ PairSteps pair_steps(float (&s)[2][4], float (&dp)[2][4], float scale, PairAt pair_at) {
#pragma unroll
  for (int x = 0; x < 2; ++x) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float lse = 0.0f;
      float delta = 0.0f;
      const bool visible = pair_at(e / 2, 8 * x + 2 * lane_place() + e % 2, lse, delta);
      const float p = expn(sub(mul(s[x][e], scale), lse));
      const float ds = mul(p, sub(dp[x][e], delta));
      s[x][e] = visible ? p : 0.0f;
      dp[x][e] = visible ? ds : 0.0f;
    }
  }
  PairSteps steps;
  take_a(steps.p, s[0], s[1]);
  take_a(steps.ds, dp[0], dp[1]);
  return steps;
}

// Grid: (64 rows, head).
template <int kWidth>
__global__ void __launch_bounds__(kAttentionThreads) attention_query_gradient_bf16(AttentionBackward<bf16> op) {
  __shared__ HeadTile<kKeys, kWidth> k;
  __shared__ HeadTile<kKeys, kWidth> v;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (op.heads / op.kv_heads);
  const int hd = op.head_dim;
  const float scale = scale_of(hd);
  for_segments(op, [&](const Segment& segment) {
    const OwnRows own(segment);
    const OwnHead<kWidth> q(op.qkv, q_column(op, head), hd, own);
    const OwnHead<kWidth> dout(op.dout, q_column(op, head), hd, own);
    float lse_of[2] = {};
    float delta_of[2] = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (!own.inside[h]) continue;
      lse_of[h] = at(op.lse, own.row[h], head);
      delta_of[h] = at(op.delta, own.row[h], head);
    }
    float dq[kWidth / 8][4] = {};
    const int seen = segment.end - segment.start;
    for (int j0 = 0; j0 < seen; j0 += kKeys) {
      const int keys = seen - j0;
      __syncthreads();  // The last keys and values have been used.
      k.fill(op.qkv, segment.start + j0, keys, k_column(op, kv_head), hd);
      v.fill(op.qkv, segment.start + j0, keys, v_column(op, kv_head), hd);
      __syncthreads();
      for (int x = 0; own.any && x < kKeys && x < keys; x += kStep) {
        float s[2][4];
        float dp[2][4];
#pragma unroll
        for (int y = 0; y < 2; ++y) {
          k.dot(s[y], q, x + 8 * y);
          v.dot(dp[y], dout, x + 8 * y);
        }
        const PairSteps steps = pair_steps(s, dp, scale, [&](int h, int n, float& lse, float& delta) {
          lse = lse_of[h];
          delta = delta_of[h];
          return own.inside[h] && j0 + x + n <= own.place[h];
        });
        k.extend(dq, steps.ds, x);
      }
    }
    if (own.any) {
      store_head<kWidth>(op.dqkv, q_column(op, head), hd, own, dq, [&](int, float x) { return mul(x, scale); });
    }
  });
}

// Grid: (64 rows, kv head). One chain per channel of dK and dV: heads of the group ascending, then the document's rows
// ascending from the k16 group of the first row that sees a key of the segment.
template <int kWidth>
__global__ void __launch_bounds__(kAttentionThreads) attention_key_value_gradient_bf16(AttentionBackward<bf16> op) {
  __shared__ HeadTile<kAttentionRows, kWidth> v;
  __shared__ HeadTile<kQueries, kWidth> q;
  __shared__ HeadTile<kQueries, kWidth> dout;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int group = op.heads / op.kv_heads;
  const int hd = op.head_dim;
  const float scale = scale_of(hd);
  for_segments(op, [&](const Segment& segment) {
    const OwnRows own(segment);
    const OwnHead<kWidth> k(op.qkv, k_column(op, kv_head), hd, own);
    const int own_first = static_cast<int>(blockIdx.x) * kAttentionRows;
    __syncthreads();  // The last segment's values have been used. Rows before this one's are read, and dropped.
    v.fill(op.qkv, own_first, segment.end - own_first, v_column(op, kv_head), hd);
    float dk[kWidth / 8][4] = {};
    float dv[kWidth / 8][4] = {};
    const int first = (segment.begin - segment.start) / kStep * kStep;
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (int i0 = first; i0 < segment.length; i0 += kQueries) {
        const int queries = segment.length - i0;
        __syncthreads();  // The last queries have been used.
        q.fill(op.qkv, segment.start + i0, queries, q_column(op, head), hd);
        dout.fill(op.dout, segment.start + i0, queries, q_column(op, head), hd);
        __syncthreads();
        for (int x = 0; own.any && x < kQueries && x < queries; x += kStep) {
          float s[2][4];
          float dp[2][4];
#pragma unroll
          for (int y = 0; y < 2; ++y) {
            q.dot(s[y], k, x + 8 * y);
            dout.dot(dp[y], v, 16 * warp_index(), x + 8 * y);
          }
          const PairSteps steps = pair_steps(s, dp, scale, [&](int h, int n, float& lse, float& delta) {
            const int i = i0 + x + n;
            if (!own.inside[h] || i >= segment.length || own.place[h] > i) return false;
            lse = at(op.lse, segment.start + i, head);
            delta = at(op.delta, segment.start + i, head);
            return true;
          });
          dout.extend(dv, steps.p, x);
          q.extend(dk, steps.ds, x);
        }
      }
    }
    if (own.any) {
      store_head<kWidth>(op.dqkv, k_column(op, kv_head), hd, own, dk, [&](int, float x) { return mul(x, scale); });
      store_head<kWidth>(op.dqkv, v_column(op, kv_head), hd, own, dv, [](int, float x) { return x; });
    }
  });
}

template <class Op>
dim3 attention_grid(const Op& op, std::int32_t heads) {
  return dim3(blocks_for(op.o.rows, kAttentionRows), static_cast<unsigned>(heads));
}
// The kernel for heads of 64 channels, or of 128: narrower ones are padded by zeros.
template <class Op>
auto for_head(const Op& op, void (*narrow)(Op), void (*wide)(Op)) {
  return op.head_dim <= 64 ? narrow : wide;
}

inline void launch_attention_bf16(CudaQueue queue, const AttentionForward<bf16>& op) {
  clear_rows_of_no_document(queue, op.row_document, op.o);
  clear_rows_of_no_document(queue, op.row_document, op.lse);
  launch(queue, attention_grid(op, op.heads), dim3(kAttentionThreads),
         for_head(op, attention_forward_bf16<64>, attention_forward_bf16<128>), op);
}
// `delta` is there already.
inline void launch_attention_bf16(CudaQueue queue, const AttentionBackward<bf16>& op) {
  clear_rows_of_no_document(queue, op.row_document, op.dqkv);
  launch(queue, attention_grid(op, op.heads), dim3(kAttentionThreads),
         for_head(op, attention_query_gradient_bf16<64>, attention_query_gradient_bf16<128>), op);
  launch(queue, attention_grid(op, op.kv_heads), dim3(kAttentionThreads),
         for_head(op, attention_key_value_gradient_bf16<64>, attention_key_value_gradient_bf16<128>), op);
}

}  // namespace lockstep
