// The tiles that the fast forms of FDA16 compute: some rows of a product and 16 of its columns.
//
// E of a step is the largest of the sums of two stored exponents, the exponent of c, and -133. With
// E from -90 to 100 the exact product a * b, scaled by 2^(25 - E), is an fp32 number, and
// converting it to an integer truncates it to the grid; what is lost when a * b underflows lies
// below the grid. The scalar form computes steps with another E, with Inf or NaN, or with a sum of
// 2^31 or more; they are rare.
#pragma once

#include <cstdint>

namespace lockstep::oracle {

inline constexpr int kTileColumns = 16, kTileRows = 32;

// Stored exponents. A sum of two is below kFda16Nothing exactly if a factor is zero and none is Inf
// or NaN, and above 100 if one is Inf or NaN. 16 bits hold every sum.
inline constexpr int kFda16Zero = -3000, kFda16Special = 8000, kFda16Nothing = -1000;
inline constexpr int kFda16Lowest = -90, kFda16Highest = 100;

struct Fda16Tile {
  std::int64_t rows, depth;
  const float* a;                    // [rows, depth]
  const std::int32_t* a_exponents;   // [rows, depth], stored twice in 32 bits.
  const float* b;                    // [depth, 16]
  const std::int16_t* b_exponents;   // [depth, 16]
  const std::int64_t *first, *last;  // Terms of each row.
  float* c;                          // [rows, 16]
};

void fda16_tile_scalar(const Fda16Tile& tile);
void fda16_tile_avx2(const Fda16Tile& tile);
void fda16_tile_avx512(const Fda16Tile& tile);

// One step of 16 columns by the scalar form.
void fda16_step_scalar(const float* a, const float* b, int count, float* c);

}  // namespace lockstep::oracle
