// Typed views of device memory. The type of an operand says how an op may touch it.
#pragma once

#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#pragma nv_diag_suppress 554  // nvcc notes that In's conversion to itself is never used.
#endif

namespace lockstep {

enum class Access : std::uint8_t {
  in,       // Read only.
  out,      // Every byte is written, rows of no document with +0; never read before it is written.
  accum,    // Read and written.
  scratch,  // Undefined before and after, exclusive during the op.
};

// A [rows, cols] view with `pitch` elements from one row to the next. A vector is one row.
// `data == nullptr` stands for an optional operand that is absent.
template <class T, Access kAccess>
struct Operand {
  static constexpr Access access = kAccess;
  using Pointer = std::conditional_t<kAccess == Access::in, const T*, T*>;

  Pointer data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t pitch = 0;

  constexpr explicit operator bool() const { return data != nullptr; }
  constexpr Pointer row(std::int64_t i) const { return data + i * pitch; }
  constexpr operator Operand<T, Access::in>() const requires(kAccess != Access::in) {
    return {data, rows, cols, pitch};
  }
  friend constexpr bool operator==(const Operand&, const Operand&) = default;
};

template <class T>
using In = Operand<T, Access::in>;
template <class T>
using Out = Operand<T, Access::out>;
template <class T>
using Accum = Operand<T, Access::accum>;
template <class T>
using Scratch = Operand<T, Access::scratch>;

// Memory that has no role yet: what a layer passes around. It takes a role where an op names it.
template <class T>
struct Tensor {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t pitch = 0;

  constexpr explicit operator bool() const { return data != nullptr; }
  constexpr std::int64_t size() const { return rows * cols; }
  // Columns [first, first + count) of every row.
  constexpr Tensor columns(std::int64_t first, std::int64_t count) const {
    return {data + first, rows, count, pitch};
  }
  template <Access kAccess>
  constexpr operator Operand<T, kAccess>() const {
    return {data, rows, cols, pitch};
  }
};

template <class T>
constexpr Tensor<T> tensor(T* data, std::int64_t rows, std::int64_t cols) {
  return {data, rows, cols, cols};
}

}  // namespace lockstep
