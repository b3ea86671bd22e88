// A bf16 product in the form in which a library takes it. CUDA headers stay out.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace lockstep {

// c[i, j] = st(chain over k of a(i, k), b(j, k)); in fp32, acc[i, j] = add(acc[i, j], that chain).
// `a_along`, `b_along`: k runs along the rows of the factor in memory, else across them.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t a_pitch = 0, b_pitch = 0, c_pitch = 0;
  bool a_along = true, b_along = true;
  bool fp32 = false;         // Whether c is fp32 rather than bf16.
  bool accumulates = false;  // Needs fp32.
  friend auto operator<=>(const Product&, const Product&) = default;
};

struct ProductMemory {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

}  // namespace lockstep
