// bf16 products for linear layers: 128 x 128 results per block, each with one accumulator over
// ascending k16 steps.
#pragma once

#include "kernels/cuda/common/fragment.cuh"

namespace lockstep {

// One factor of c[m, n] = chain over k of a(m, k), b(n, k). `along_k`: k runs along its rows.
template <class T, bool along_k>
struct LinearFactor {
  const T* data;
  std::int64_t pitch;
  std::int64_t size;   // Extent of m, or n.
  std::int64_t depth;  // Extent of k.

  __device__ const T* at(std::int64_t m, std::int64_t k) const {
    return along_k ? data + m * pitch + k : data + k * pitch + m;
  }
};

// The destination of c[m, n].
template <class T>
struct LinearResult {
  T* data;
  std::int64_t pitch;
  bool accumulates;

  __device__ void put(std::int64_t m, std::int64_t n, float value) const {
    T& to = data[m * pitch + n];
    to = st<T>(accumulates ? add(load(to), value) : value);
  }
};

inline constexpr int kWideTile = 128;  // Rows and columns of a block's tile.
inline constexpr int kWideDepth = 32;  // Elements of k in shared memory at a time.
inline constexpr int kWarpRows = 32;   // A warp owns 32 x 64 results.
inline constexpr int kWarpColumns = 64;

// A factor's part in shared memory, in the order of its rows in global memory: 32 elements of k for
// 128 of m.
template <bool along_k>
struct WideTile {
  static constexpr int kLines = along_k ? kWideTile : kWideDepth;
  static constexpr int kLine = along_k ? kWideDepth : kWideTile;
  static constexpr int kPitch = kLine + 8;
  static constexpr int kOwnVec8 = kWideTile * kWideDepth / 8 / kThreads;
  using PairAt = std::conditional_t<along_k, AlongK<kPitch>, AcrossK<kPitch>>;

  alignas(16) bf16 places[kLines][kPitch];

  // The values that a thread moves from global to shared memory.
  struct Load {
    Vec8 own[kOwnVec8];
  };
  static __device__ Load load(const LinearFactor<bf16, along_k>& from, std::int64_t m0,
                              std::int64_t k0, bool aligned) {
    Load load;
#pragma unroll
    for (int x = 0; x < kOwnVec8; ++x) {
      const std::int64_t m = m0 + (along_k ? line(x) : place(x));
      const std::int64_t k = k0 + (along_k ? place(x) : line(x));
      const std::int64_t lines_left = along_k ? from.size - m : from.depth - k;
      const std::int64_t places_left = along_k ? from.depth - k : from.size - m;
      load.own[x] = lines_left > 0 && places_left > 0
                        ? load_vec8(from.at(m, k), places_left, aligned)
                        : Vec8{};
    }
    return load;
  }
  __device__ void store(const Load& load) {
#pragma unroll
    for (int x = 0; x < kOwnVec8; ++x)
      *reinterpret_cast<Vec8*>(&places[line(x)][place(x)]) = load.own[x];
  }

 private:
  static __device__ int line(int x) {
    return (static_cast<int>(threadIdx.x) + x * kThreads) / (kLine / 8);
  }
  static __device__ int place(int x) {
    return (static_cast<int>(threadIdx.x) + x * kThreads) % (kLine / 8) * 8;
  }
};

template <bool a_along_k, bool b_along_k, class Result>
__global__ void __launch_bounds__(kThreads)
    product_bf16(LinearFactor<bf16, a_along_k> a, LinearFactor<bf16, b_along_k> b,
                 LinearResult<Result> c) {
  pdl_begin();
  using ATile = WideTile<a_along_k>;
  using BTile = WideTile<b_along_k>;
  __shared__ ATile a_tile;
  __shared__ BTile b_tile;
  const std::int64_t m0 = static_cast<std::int64_t>(blockIdx.x) * kWideTile;
  const std::int64_t n0 = static_cast<std::int64_t>(blockIdx.y) * kWideTile;
  const int m_own = warp_index() % 4 * kWarpRows;
  const int n_own = warp_index() / 4 * kWarpColumns;
  const bool a_aligned = moves_vec8(a.data, a.pitch);
  const bool b_aligned = moves_vec8(b.data, b.pitch);
  const typename ATile::PairAt a_at{a_tile.places};
  const typename BTile::PairAt b_at{b_tile.places};
  float acc[kWarpRows / 16][kWarpColumns / 8][4] = {};
  auto a_next = ATile::load(a, m0, 0, a_aligned);
  auto b_next = BTile::load(b, n0, 0, b_aligned);
  for (std::int64_t k0 = 0; k0 < a.depth; k0 += kWideDepth) {
    __syncthreads();  // The previous elements of k have been used.
    a_tile.store(a_next);
    b_tile.store(b_next);
    __syncthreads();
    if (k0 + kWideDepth < a.depth) {
      a_next = ATile::load(a, m0, k0 + kWideDepth, a_aligned);
      b_next = BTile::load(b, n0, k0 + kWideDepth, b_aligned);
    }
#pragma unroll
    for (int k = 0; k < kWideDepth; k += kStep) {  // A step past the end is all zeros.
      std::uint32_t a_step[kWarpRows / 16][4];
#pragma unroll
      for (int i = 0; i < kWarpRows / 16; ++i) take_a(a_step[i], a_at, m_own + 16 * i, k);
#pragma unroll
      for (int j = 0; j < kWarpColumns / 8; ++j) {
        std::uint32_t b_step[2];
        take_b(b_step, b_at, n_own + 8 * j, k);
#pragma unroll
        for (int i = 0; i < kWarpRows / 16; ++i) fda16(acc[i][j], a_step[i], b_step);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kWarpRows / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpColumns / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const std::int64_t m = m0 + m_own + 16 * i + lane_group() + 8 * (e / 2);
        const std::int64_t n = n0 + n_own + 8 * j + 2 * lane_place() + e % 2;
        if (m < a.size && n < b.size) c.put(m, n, acc[i][j][e]);
      }
    }
  }
}

}  // namespace lockstep
