// Chains of FDA16 for many outputs at once, bit-equal to fda_chain of the contract's tensor core
// (kernels/core/fda16.h).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/contract.h"

namespace lockstep {

inline constexpr int kFdaGroup = 16;  // Places of one step.
inline constexpr int kFdaLanes = 16;  // Outputs side by side.

// Exponents of operands as the fast forms add them. The sum for a product with a zero lies far
// below every other sum, that with an infinity or NaN above, whatever the other operand is.
inline constexpr std::int16_t kFdaZero = -3000;
inline constexpr std::int16_t kFdaSpecial = 8000;
inline constexpr int kFdaNoProduct =
    -1000;  // The largest exponent lies below this: no product takes part.

// The right factor b(e, j) of many chains, packed once: panels of 16 columns, each [padded k][16],
// zeros at the borders. An operand of a bf16 product is a stored value: what is not stored yet is
// rounded here.
class FdaPanels {
 public:
  template <class T>
  void pack(std::int64_t k, std::int64_t n, const T* b, std::int64_t step_stride,
            std::int64_t column_stride);
  std::int64_t columns() const { return columns_; }
  const float* values(std::int64_t panel) const {
    return values_.data() + panel * depth_ * kFdaLanes;
  }
  const std::int16_t* exponents(std::int64_t panel) const {
    return exponents_.data() + panel * depth_ * kFdaLanes;
  }

 private:
  std::int64_t depth_ = 0, columns_ = 0;
  std::vector<float> values_;
  std::vector<std::int16_t> exponents_;
};

// One row a(e) of the left factor, bf16 values. The exponent stands twice in its word, to be spread
// over 16-bit lanes.
void pack_fda_row(std::int64_t begin, std::int64_t end, const float* a, std::int64_t stride,
                  float* values, std::uint32_t* exponents);

// Continues 16 chains in c over the places begin <= e < end of one panel and one packed row; groups
// are at multiples of 16, and places outside are left out.
using FdaKernel = void (*)(std::int64_t begin, std::int64_t end, const float* a,
                           const std::uint32_t* a_exponents, const float* b,
                           const std::int16_t* b_exponents, float* c);
struct FdaForm {
  const char* name;
  FdaKernel kernel;
};
// The forms that this machine can run, the fastest first; the last one is the scalar model.
const std::vector<FdaForm>& fda_forms();

// c[j] = DOT continued from c[j] over begin <= e < end of a(e), b(e, j), for j < columns <=
// b.columns().
void fda_row(std::int64_t begin, std::int64_t end, const float* a, std::int64_t a_stride,
             const FdaPanels& b, float* c, std::int64_t columns);

// Element (i, j) lies at data[i * row_stride + j * col_stride].
struct Bf16View {
  const bf16* data;
  std::int64_t row_stride;
  std::int64_t col_stride;
};
// c[i, j] = st(DOT over e = 0..k-1 of a(i, e), b(e, j)).
template <class Result>
void product(std::int64_t m, std::int64_t n, std::int64_t k, Bf16View a, Bf16View b, Result* c,
             std::int64_t c_pitch);

// One step in the scalar model, for the lanes that a fast form cannot do.
void fda_lane(std::int64_t places, const float* a, const float* b, float* c);
void fda_scalar(std::int64_t begin, std::int64_t end, const float* a,
                const std::uint32_t* a_exponents, const float* b, const std::int16_t* b_exponents,
                float* c);
#if defined(__x86_64__)
void fda_avx2(std::int64_t begin, std::int64_t end, const float* a,
              const std::uint32_t* a_exponents, const float* b, const std::int16_t* b_exponents,
              float* c);
void fda_avx512(std::int64_t begin, std::int64_t end, const float* a,
                const std::uint32_t* a_exponents, const float* b, const std::int16_t* b_exponents,
                float* c);
#endif

}  // namespace lockstep
