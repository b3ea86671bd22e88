// A product of bf16 numbers or of fp8 codes in the form in which a library takes it. CUDA headers
// stay out.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace lockstep {

enum class Factors : std::uint8_t {
  bf16,
  e4m3,       // Both factors.
  e5m2_e4m3,  // a, and b.
};

// bf16: c[i, j] = st(chain over k of a(i, k), b(j, k)).
// fp8: c[i, j] = st(mul(DOT8 over k of a(i, k), b(j, k), the factors' scales)).
// In fp32 without the store, or acc[i, j] = add(acc[i, j], that sum).
// `a_along`, `b_along`: k runs along the rows of the factor in memory, else across them. Both are
// true for fp8.
struct Product {
  Factors factors = Factors::bf16;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t a_pitch = 0, b_pitch = 0, c_pitch = 0;
  bool a_along = true, b_along = true;
  bool fp32 = false;         // Whether c is fp32 rather than bf16.
  bool accumulates = false;  // Needs fp32.
  // How many multiprocessors the library's algorithm is chosen for; 0: all.
  std::int32_t multiprocessors = 0;
  friend auto operator<=>(const Product&, const Product&) = default;
  std::size_t factor_bytes() const { return factors == Factors::bf16 ? 2 : 1; }  // An element.
};

struct ProductMemory {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const float* a_scale = nullptr;  // fp8: one number each, on the device.
  const float* b_scale = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

}  // namespace lockstep
