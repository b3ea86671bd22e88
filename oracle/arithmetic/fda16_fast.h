// DOT of arithmetic.md 0.1 in bf16 numerics for many results at once: chains of FDA16 whose lanes
// are independent results. Every form has the bits of oracle/arithmetic/fda16.h.
#pragma once

#include <cstdint>

#include "oracle/arithmetic/factors.h"

namespace lockstep::oracle {

enum class Fda16Form : std::uint8_t { scalar, avx2, avx512 };

bool supported(Fda16Form form);  // Whether this processor can run it.
Fda16Form fastest_fda16();

// Writes c(i, j) = DOT over the terms of row i of a(i, k), b(k, j) to c[i * stride + j]. Groups of
// 16 count from k = 0. The factors are widened bf16 numbers; throws std::logic_error if one is not.
void fda16_dots(std::int64_t rows, std::int64_t cols, const Terms& terms, std::int64_t depth,
                Left<float> a, Right<float> b, float* c, std::int64_t stride, Chain chain,
                Fda16Form form = fastest_fda16());

}  // namespace lockstep::oracle
