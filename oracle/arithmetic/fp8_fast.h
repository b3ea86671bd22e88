// DOT8 of arithmetic.md 5.3 and codes of 5.2 for many results at once. Every form has the bits of
// dot8 and fp8_code in oracle/arithmetic/fp8.h.
#pragma once

#include <cstdint>

#include "oracle/arithmetic/factors.h"
#include "oracle/arithmetic/fp8.h"

namespace lockstep::oracle {

enum class Fp8Form : std::uint8_t { scalar, avx2, avx512 };

bool supported(Fp8Form form);  // Whether this processor can run it.
Fp8Form fastest_fp8();

// Writes c(i, j) = DOT8 over k of the codes a(i, k), b(k, j) to c[i * stride + j]. Groups of 32 and
// runs of 128 count from k = 0.
void fp8_dots(std::int64_t rows, std::int64_t cols, std::int64_t depth, Left<std::uint8_t> a,
              const Fp8Type& type_a, Right<std::uint8_t> b, const Fp8Type& type_b, float* c,
              std::int64_t stride, Fp8Form form = fastest_fp8());

// to[e] = fp8_code(from[e], k, type) for e < n, without branches, so that compilers vectorise it.
void fp8_codes(const float* from, std::int64_t n, int k, const Fp8Type& type, std::uint8_t* to);

}  // namespace lockstep::oracle
