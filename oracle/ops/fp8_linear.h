// The products of fp8 numerics with weights, arithmetic.md 5.4. Weights are stored [out, in].
#pragma once

#include <span>
#include <vector>

#include "oracle/arithmetic/fp8_fast.h"
#include "oracle/arithmetic/matrix.h"
#include "oracle/arithmetic/pack.h"

namespace lockstep::oracle {

// Codes [rows, cols] of an operand, by one exponent: the operand's values times 2^exponent.
struct Fp8Operand {
  Matrix<std::uint8_t> codes;
  int exponent = 0;
  std::uint32_t amax = 0;  // The amax of the values, for a report.
};

// The amax of one segment's rows in use.
inline std::uint32_t amax_of(const PackedBatch& pack, const Matrix<float>& x) {
  std::uint32_t amax = 0;
  for (const Piece& run : pack.runs) {
    for (std::int64_t e = 0; e < run.rows * x.cols; ++e)
      amax = amax_with(amax, x.row(run.first)[e]);
  }
  return amax;
}

inline std::uint32_t amax_of(const float* weight, std::int64_t n) {
  std::uint32_t amax = 0;
  for (std::int64_t e = 0; e < n; ++e) amax = amax_with(amax, weight[e]);
  return amax;
}

// Rows that are not in use have code 00.
inline Fp8Operand quantised(const PackedBatch& pack, const Matrix<float>& x, int exponent,
                            const Fp8Type& type) {
  Fp8Operand to{{x.rows, x.cols}, exponent};
  for (const Piece& run : pack.runs)
    fp8_codes(x.row(run.first), run.rows * x.cols, exponent, type, to.codes.row(run.first));
  return to;
}

inline Fp8Operand quantised(const float* weight, std::int64_t out, std::int64_t in, int exponent) {
  Fp8Operand to{{out, in}, exponent};
  fp8_codes(weight, out * in, exponent, kE4m3, to.codes.values.data());
  return to;
}

// Multiplies by 2^-(k of a + k of b), which is exact but for overflow.
inline void scale(const Fp8Operand& a, const Fp8Operand& b, std::span<float> values) {
  const float factor = power_of_two(-(a.exponent + b.exponent));
  for (float& value : values) value = mul(value, factor);
}

// y[i, :] = st of the product of x8[i, :] and the rows of w8.
inline void fp8_linear(const Fp8Operand& x, const Fp8Operand& w, Matrix<float>& y) {
  const std::int64_t in = x.codes.cols, out = w.codes.rows;
  const Matrix<std::uint8_t> by_input = transposed(w.codes.values.data(), out, in, in);
  fp8_dots(x.codes.rows, out, in, Left<std::uint8_t>{x.codes.values.data(), in, 1}, kE4m3,
           Right<std::uint8_t>{by_input.values.data(), out}, kE4m3, y.values.data(), out);
  scale(x, w, y.values);
  for (float& value : y.values) value = Bf16::st(value);
}

inline Matrix<float> fp8_input_gradient(const Fp8Operand& dy, const Fp8Operand& w) {
  const std::int64_t in = w.codes.cols, out = w.codes.rows;
  Matrix<float> dx(dy.codes.rows, in);
  fp8_dots(dy.codes.rows, in, out, Left<std::uint8_t>{dy.codes.values.data(), out, 1}, kE5m2,
           Right<std::uint8_t>{w.codes.values.data(), in}, kE4m3, dx.values.data(), in);
  scale(dy, w, dx.values);
  for (float& value : dx.values) value = Bf16::st(value);
  return dx;
}

// Returns one sum over the rows of a segment, in fp32.
inline std::vector<float> fp8_weight_gradient(const Fp8Operand& dy, const Fp8Operand& x) {
  const std::int64_t in = x.codes.cols, out = dy.codes.cols;
  std::vector<float> dw(out * in);
  fp8_dots(out, in, x.codes.rows, Left<std::uint8_t>{dy.codes.values.data(), 1, out}, kE5m2,
           Right<std::uint8_t>{x.codes.values.data(), in}, kE4m3, dw.data(), in);
  scale(dy, x, dw);
  return dw;
}

}  // namespace lockstep::oracle
