// Elementwise ops move eight neighbours of a row at a time: 16 bytes of bf16, where addresses allow
// it.
#pragma once

#include <type_traits>

#include "kernels/core/require.h"
#include "kernels/cuda/common/fragment.cuh"

namespace lockstep {

inline constexpr int kVec8 = 8;

template <class T>
struct alignas(16) Bytes16 {
  T x[16 / sizeof(T)];
};

// Whether every row of a view begins at a multiple of 16 bytes. True for absent operands.
template <class T, Access kAccess>
bool is_vectorizable(const Operand<T, kAccess>& operand) {
  return reinterpret_cast<std::uintptr_t>(operand.data) % 16 == 0 &&
         static_cast<std::uintptr_t>(operand.pitch) * sizeof(T) % 16 == 0;
}
template <class... Operands>
bool all_vectorizable(const Operands&... operands) {
  return (is_vectorizable(operands) && ...);
}

// Loads the first `count` of eight neighbours; the others are +0. `wide`: all exist, at a multiple
// of 16 bytes.
template <class T>
__device__ __forceinline__ void load_vec8(float (&to)[kVec8], const T* from, std::int64_t count,
                                          bool wide) {
  if (wide && count >= kVec8) {
    constexpr int kPiece = 16 / sizeof(T);
#pragma unroll
    for (int part = 0; part < kVec8 / kPiece; ++part) {
      const auto piece = reinterpret_cast<const Bytes16<T>*>(from)[part];
#pragma unroll
      for (int k = 0; k < kPiece; ++k) to[kPiece * part + k] = load(piece.x[k]);
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kVec8; ++k) to[k] = k < count ? load(from[k]) : 0.0f;
}
// Eight neighbours as they are stored. A thread that loads several before it uses the first waits
// for memory once.
template <class T>
struct StoredVec8 {
  static constexpr int kPiece = 16 / sizeof(T);
  Bytes16<T> pieces[kVec8 / kPiece];
  __device__ __forceinline__ float operator[](int k) const {
    return load(pieces[k / kPiece].x[k % kPiece]);
  }
};
// As load_vec8; kWide: all eight exist, at a multiple of 16 bytes.
template <bool kWide, class T>
__device__ __forceinline__ StoredVec8<T> stored_vec8(const T* from, std::int64_t count) {
  constexpr int kPiece = StoredVec8<T>::kPiece;
  StoredVec8<T> eight = {};
  if constexpr (kWide) {
#pragma unroll
    for (int part = 0; part < kVec8 / kPiece; ++part) {
      eight.pieces[part] = reinterpret_cast<const Bytes16<T>*>(from)[part];
    }
  } else {
#pragma unroll
    for (int k = 0; k < kVec8; ++k) {
      if (k < count) eight.pieces[k / kPiece].x[k % kPiece] = from[k];
    }
  }
  return eight;
}
// Stores the first `count` to global memory.
template <class T>
__device__ __forceinline__ void store_vec8(T* to, const float (&from)[kVec8], std::int64_t count,
                                           bool wide) {
  if (wide && count >= kVec8) {
    constexpr int kPiece = 16 / sizeof(T);
#pragma unroll
    for (int part = 0; part < kVec8 / kPiece; ++part) {
      const float* const f = from + kPiece * part;
      if constexpr (std::is_same_v<T, bf16>) {
        store_16(to, stored_pair(f[0], f[1]), stored_pair(f[2], f[3]), stored_pair(f[4], f[5]),
                 stored_pair(f[6], f[7]));
      } else {
        store_16(to + kPiece * part, bits(f[0]), bits(f[1]), bits(f[2]), bits(f[3]));
      }
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kVec8; ++k) {
    if (k < count) to[k] = st<T>(from[k]);
  }
}

// Eight neighbours of a row: columns col .. col + 7, of which `count` exist.
struct Vec8s {
  std::int64_t row;
  std::int64_t col;
  std::int64_t count;
  bool inside;
};
__device__ __forceinline__ Vec8s own_vec8(std::int64_t rows, std::int64_t cols) {
  const auto per_row = static_cast<std::uint32_t>((cols + kVec8 - 1) / kVec8);
  const std::uint32_t e = blockIdx.x * static_cast<std::uint32_t>(kThreads) + threadIdx.x;
  const std::uint32_t row = e / per_row;
  const std::int64_t col = static_cast<std::int64_t>(e - row * per_row) * kVec8;
  return {row, col, cols - col, static_cast<std::int64_t>(row) < rows};
}
template <class Kernel, class... Arguments>
void launch_vec8(CudaQueue queue, std::int64_t rows, std::int64_t cols, Kernel kernel,
                 const Arguments&... arguments) {
  const std::int64_t per_row = (cols + kVec8 - 1) / kVec8;
  require(rows * per_row <= std::int64_t{1} << 32, "eights are numbered in 32 bits");
  launch(queue, dim3(blocks_for(rows * per_row, kThreads)), dim3(kThreads), kPdl, kernel,
         arguments...);
}

// y[k] = f(k, x) for each of the eight.
template <class F>
__device__ __forceinline__ void each_vec8(F f) {
#pragma unroll
  for (int k = 0; k < kVec8; ++k) f(k);
}

}  // namespace lockstep
