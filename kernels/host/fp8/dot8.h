// DOT8 for many outputs at once, bit-equal to dot8 (kernels/core/fp8.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/core/fp8.h"

namespace lockstep {

inline constexpr int kDot8Lanes = 16;  // Outputs side by side.

// Exponents of codes as the fast forms add them, with saturation, in 8 bits. The sum for a product
// with a zero lies below every other sum, that with an infinity or NaN above, whatever the other
// operand is.
inline constexpr std::int8_t kDot8Zero = -64, kDot8Special = 127;
inline constexpr int kDot8NoNumber = 63;  // A sum from here on has met an infinity or NaN.

// One run of up to 128 places of the right factor's 16 columns. A place in use past the run's end
// has code 00.
struct Dot8Slice {
  int groups;                    // Groups of 32 places.
  const std::uint8_t* codes;     // [32 groups][16]
  const std::int8_t* exponents;  // [8 groups][16][4]: four places of a column are one word.
  int shift;                     // A magnitude's bits are ((code & 7f) << shift) + bias, for a
  std::uint32_t bias;            // normal code. Others take off 2^(1 - its type's bias).
};
// The same run of rows of the left factor; `stride` leads from one row to the next.
struct Dot8Rows {
  const float* magnitudes;
  // Where a fast form keeps what the place subtracts: 64 bytes behind the magnitudes of the right
  // factor's place if the left operand is positive, 128 if it is negative.
  const std::int32_t* offsets;
  const std::int8_t* exponents;
  std::int64_t stride;
};
// p[16 i + j] = the run's chain of FDA32 for row i and column j. A lane that met an infinity or NaN
// has its bit set in met[i] and any p.
using Dot8Kernel = void (*)(const Dot8Slice& slice, int rows, const Dot8Rows& a, float* p,
                            std::uint16_t* met);
struct Dot8Form {
  const char* name;
  Dot8Kernel kernel;
};
// The forms that this machine can run, the fastest first; the last one is the scalar model.
const std::vector<Dot8Form>& dot8_forms();

// Row i is data[i * pitch + e] for e < k.
template <class F>
struct Fp8View {
  const F* data;
  std::int64_t pitch;
};
// Takes DOT8(a_i, b_j) for top <= i < top + rows and first <= j < first + columns, as tile[16 (i -
// top) + (j - first)].
using Dot8Sink = std::function<void(std::int64_t top, std::int64_t rows, std::int64_t first,
                                    std::int64_t columns, const float* tile)>;
// Every i < m and j < n, by the given form.
template <class A, class B>
void dot8_product(Dot8Kernel kernel, std::int64_t m, std::int64_t n, std::int64_t k,
                  const Fp8View<A>& a, const Fp8View<B>& b, const Dot8Sink& sink);

void dot8_scalar(const Dot8Slice& slice, int rows, const Dot8Rows& a, float* p, std::uint16_t* met);
#if defined(__x86_64__)
void dot8_avx2(const Dot8Slice& slice, int rows, const Dot8Rows& a, float* p, std::uint16_t* met);
void dot8_avx512(const Dot8Slice& slice, int rows, const Dot8Rows& a, float* p, std::uint16_t* met);
#endif

}  // namespace lockstep
