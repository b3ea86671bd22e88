// The products of fp8 numerics: the vectors of arithmetic.md 5.6.
#include "oracle/ops/fp8_linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "oracle/ops/experts.h"

namespace lockstep::oracle {
namespace {

Matrix<float> widened(std::int64_t cols, const std::vector<std::uint32_t>& halves) {
  Matrix<float> x(static_cast<std::int64_t>(halves.size()) / cols, cols);
  for (std::size_t e = 0; e < halves.size(); ++e) x.values[e] = from_bits(halves[e] << 16);
  return x;
}

std::vector<std::uint32_t> halves_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> halves;
  for (const float value : values) halves.push_back(bits(value) >> 16);
  return halves;
}

Fp8Operand by_own_amax(const PackedBatch& pack, const Matrix<float>& x, const Fp8Type& type) {
  return quantised(pack, x, fp8_exponent(amax_of(pack, x), type), type);
}

using Halves = std::vector<std::uint32_t>;
using Codes = std::vector<std::uint8_t>;

TEST(fp8_linear, a_layer_has_the_vectors) {
  PackedBatch pack;
  pack.rows = 3;
  pack.runs = {{0, 1, 0}, {2, 1, 0}};
  // Row 1 belongs to no document: its bytes count for nothing.
  const Matrix<float> x = widened(2, {0x3fc0, 0xbe80, 0x7f80, 0x7fc0, 0x4040, 0x3c00});
  const Matrix<float> w = widened(2, {0x3f00, 0xc000, 0x3cf6, 0x3f80});
  const Matrix<float> dy = widened(2, {0x3a83, 0xb727, 0x7fc0, 0x4f00, 0x2edc, 0x3983});
  const Fp8Operand x8 = by_own_amax(pack, x, kE4m3), y8 = by_own_amax(pack, dy, kE5m2);
  const Fp8Operand w8 =
      quantised(w.values.data(), 2, 2, fp8_exponent(amax_of(w.values.data(), 4), kE4m3));
  EXPECT_EQ(x8.exponent, 7);
  EXPECT_EQ(w8.exponent, 7);
  EXPECT_EQ(y8.exponent, 25);
  EXPECT_EQ(x8.codes.values, (Codes{0x74, 0xe0, 0, 0, 0x7c, 0x38}));
  EXPECT_EQ(w8.codes.values, (Codes{0x68, 0xf8, 0x47, 0x70}));
  EXPECT_EQ(y8.codes.values, (Codes{0x78, 0xdd, 0, 0, 0x1b, 0x70}));
  Matrix<float> y(3, 2);
  fp8_linear(x8, w8, y);
  EXPECT_EQ(halves_of(y.values), (Halves{0x3fa0, 0xbe53, 0, 0, 0x3fbe, 0x3dc4}));
  EXPECT_EQ(halves_of(fp8_input_gradient(y8, w8).values),
            (Halves{0x3a00, 0xbb01, 0, 0, 0x36f0, 0x3980}));
  const std::vector<float> dw = fp8_weight_gradient(y8, x8);
  const std::uint32_t want[] = {0x3ac00000, 0xb9800000, 0x3a3c4000, 0x36900000};
  for (int e = 0; e < 4; ++e) EXPECT_EQ(bits(dw[e]), want[e]) << e;
}

// Rows first..first+rows-1 of the vector's X and dY as a segment of its own.
struct Segment {
  Segment(std::int64_t first, std::int64_t rows, int skipped_every = 0)
      : pack(own_rows(rows)), x(rows, 1), dy(rows, 1) {
    if (skipped_every != 0) pack.runs.clear();
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto i = static_cast<int>(first + r);
      x.values[r] = std::ldexp(static_cast<float>((53 * i + 29) % 127 - 63), -(i % 7));
      dy.values[r] = std::ldexp(static_cast<float>((71 * i + 3) % 123 - 61), i % 11 - 12);
      if (skipped_every != 0 && i % skipped_every != 0) pack.runs.push_back({r, 1, 0});
    }
  }
  Fp8Operand x8() const { return by_own_amax(pack, x, kE4m3); }
  Fp8Operand y8() const { return by_own_amax(pack, dy, kE5m2); }
  float gradient() const { return fp8_weight_gradient(y8(), x8())[0]; }

  PackedBatch pack;
  Matrix<float> x, dy;
};

TEST(fp8_linear, weight_gradients_have_the_vectors) {
  const Segment first(0, 33), second(33, 167), whole(0, 200);
  EXPECT_EQ(first.x8().exponent, 2);
  EXPECT_EQ(second.x8().exponent, 2);
  EXPECT_EQ(first.y8().exponent, 12);
  EXPECT_EQ(second.y8().exponent, 11);
  EXPECT_EQ(bits(first.gradient()), 0xc4353000u);
  EXPECT_EQ(bits(second.gradient()), 0x44460600u);
  EXPECT_EQ(bits(add(first.gradient(), second.gradient())), 0x4286b000u);
  EXPECT_EQ(bits(whole.gradient()), 0x4287a000u);
  EXPECT_EQ(bits(Segment(0, 200, 3).gradient()), 0x44467200u);
}

// The wrong order that the vectors name: groups counted from the buffer's first row.
TEST(fp8_linear, groups_from_the_buffer_differ) {
  const Segment second(33, 167);
  PackedBatch late = own_rows(200);
  late.runs = {{33, 167, 0}};
  Matrix<float> x(200, 1), dy(200, 1);
  put_rows(second.x, 33, x);
  put_rows(second.dy, 33, dy);
  EXPECT_EQ(bits(fp8_weight_gradient(by_own_amax(late, dy, kE5m2), by_own_amax(late, x, kE4m3))[0]),
            0x44460e00u);
}

TEST(fp8_linear, no_rows_give_zero) {
  const PackedBatch none = own_rows(0);
  const Matrix<float> x(0, 3), dy(0, 2);
  for (const float value :
       fp8_weight_gradient(by_own_amax(none, dy, kE5m2), by_own_amax(none, x, kE4m3)))
    EXPECT_EQ(bits(value), 0u);
}

}  // namespace
}  // namespace lockstep::oracle
