// The tiles that the fast forms of DOT8 compute: some rows of a product and 64 of its columns, over
// one run of at most 128 terms.
//
// FDA32 cuts each term toward zero to the grid 2^(E-13). An fp32 sum that starts at 2^(E+10) has
// this grid as its unit in the last place, and stays below 2^(E+11): so fma(|a|, |b|, sum), rounded
// toward zero, drops what FDA32 drops. Positive and negative terms have a sum each, whose
// difference is exact; clearing its low 10 bits leaves 13 fraction bits. E of DOT8 lies between -41
// and 40, so nothing here overflows or underflows. Codes of Inf and NaN are for the scalar form.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep::oracle {

inline constexpr int kFp8Columns = 64, kFp8Rows = 32, kFp8Group = 32, kFp8Run = 128;

// The exponent of a zero: lower than any, and the sum of two fits eight bits.
inline constexpr int kFp8Zero = -60, kFp8Nothing = -50;

struct Fp8Tile {
  std::int64_t rows, terms;  // terms: of this run, a multiple of 32; zeros behind the last.
  std::int64_t columns;      // That are wanted, at most 64; others in `part` are anything.
  std::int64_t pitch;        // Between rows of a and a_exponents.
  const float* a;            // Signed.
  const std::int8_t* a_exponents;
  const float *up, *down;          // [terms, 64]: max(b, 0) and max(-b, 0).
  const std::int8_t* b_exponents;  // [terms, 64]
  float* part;                     // [rows, 64]
};

// The right factors of a term's sign, and those of the other one. The sign is an index, since a
// branch on it would be mispredicted every other time.
struct Fp8Sides {
  const float *same, *other;
};
inline Fp8Sides fp8_sides(float left, const float* up, const float* down) {
  const float* const sides[2] = {up, down};
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(left) >> 31;
  return {sides[sign], sides[1 - sign]};
}

void fp8_run_avx2(const Fp8Tile& tile);
void fp8_run_avx512(const Fp8Tile& tile);

}  // namespace lockstep::oracle
