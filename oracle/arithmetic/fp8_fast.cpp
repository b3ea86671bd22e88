#include "oracle/arithmetic/fp8_fast.h"

#include <algorithm>
#include <array>
#include <vector>

#include "oracle/arithmetic/fp8_tile.h"

namespace lockstep::oracle {

namespace {

// The values and exponents of a type's 256 codes.
struct Fp8Values {
  explicit Fp8Values(const Fp8Type& type) {
    for (int code = 0; code < 256; ++code) {
      const Decoded x = decode_fp8(static_cast<std::uint8_t>(code), type);
      special[code] = x.nan || x.infinite;
      exponent[code] = static_cast<std::int8_t>(x.significand == 0 ? kFp8Zero : x.exponent);
      const float magnitude = static_cast<float>(x.significand);
      value[code] =
          mul(x.negative ? -magnitude : magnitude, power_of_two(x.exponent - type.fraction));
    }
  }
  std::array<float, 256> value;
  std::array<std::int8_t, 256> exponent;
  std::array<bool, 256> special;
};

// The right factor in panels of 64 columns: [panel][k][column], zeros beyond the last term and
// column.
struct RightPanels {
  RightPanels(Right<std::uint8_t> from, const Fp8Values& values, std::int64_t depth,
              std::int64_t cols, std::int64_t padded)
      : panels((cols + kFp8Columns - 1) / kFp8Columns),
        panel_size(padded * kFp8Columns),
        up(panels * panel_size),
        down(panels * panel_size),
        exponents(panels * panel_size, kFp8Zero) {
    for (std::int64_t k = 0; k < depth; ++k) {
      for (std::int64_t j = 0; j < cols; ++j) {
        const std::uint8_t code = from.at[k * from.term + j];
        const std::int64_t to = j / kFp8Columns * panel_size + k * kFp8Columns + j % kFp8Columns;
        up[to] = std::max(values.value[code], 0.0f);
        down[to] = std::max(-values.value[code], 0.0f);
        exponents[to] = values.exponent[code];
        special = special || values.special[code];
      }
    }
  }
  std::int64_t panels, panel_size;
  std::vector<float> up, down;
  std::vector<std::int8_t> exponents;
  bool special = false;
};

struct LeftRows {
  explicit LeftRows(std::int64_t padded)
      : values(padded * kFp8Rows), exponents(padded * kFp8Rows, kFp8Zero), pitch(padded) {}

  // Returns whether a code is Inf or NaN.
  bool take(Left<std::uint8_t> a, const Fp8Values& table, std::int64_t count, std::int64_t depth) {
    bool special = false;
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t k = 0; k < depth; ++k) {
        const std::uint8_t code = a.at[i * a.row + k * a.term];
        values[i * pitch + k] = table.value[code];
        exponents[i * pitch + k] = table.exponent[code];
        special = special || table.special[code];
      }
    }
    return special;
  }
  std::vector<float> values;
  std::vector<std::int8_t> exponents;
  std::int64_t pitch;
};

}  // namespace

void fp8_dots(std::int64_t rows, std::int64_t cols, std::int64_t depth, Left<std::uint8_t> a,
              const Fp8Type& type_a, Right<std::uint8_t> b, const Fp8Type& type_b, float* c,
              std::int64_t stride, Fp8Form form) {
  const std::int64_t padded = (depth + kFp8Group - 1) / kFp8Group * kFp8Group;
  const Fp8Values left_values(type_a), right_values(type_b);
  const RightPanels right(b, right_values, depth, cols, padded);
  LeftRows left(padded);
  for (std::int64_t i0 = 0; i0 < rows; i0 += kFp8Rows) {
    const std::int64_t count = std::min<std::int64_t>(kFp8Rows, rows - i0);
    const Left<std::uint8_t> from{a.at + i0 * a.row, a.row, a.term};
    const bool special = left.take(from, left_values, count, depth) || right.special;
    if (special || form == Fp8Form::scalar) {
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t j = 0; j < cols; ++j)
          c[(i0 + i) * stride + j] =
              dot8(from.at + i * a.row, a.term, type_a, b.at + j, b.term, type_b, depth);
      }
      continue;
    }
    for (std::int64_t p = 0; p < right.panels; ++p) {
      const std::int64_t width = std::min<std::int64_t>(kFp8Columns, cols - p * kFp8Columns);
      float total[kFp8Rows * kFp8Columns] = {}, part[kFp8Rows * kFp8Columns];
      for (std::int64_t k = 0; k < padded; k += kFp8Run) {
        const std::int64_t at = p * right.panel_size + k * kFp8Columns;
        const Fp8Tile tile{count,
                           std::min<std::int64_t>(kFp8Run, padded - k),
                           width,
                           left.pitch,
                           left.values.data() + k,
                           left.exponents.data() + k,
                           right.up.data() + at,
                           right.down.data() + at,
                           right.exponents.data() + at,
                           part};
        if (form == Fp8Form::avx512) fp8_run_avx512(tile);
        if (form == Fp8Form::avx2) fp8_run_avx2(tile);
        for (std::int64_t i = 0; i < count; ++i) {
          for (std::int64_t e = i * kFp8Columns; e < i * kFp8Columns + width; ++e)
            total[e] = add(total[e], part[e]);
        }
      }
      for (std::int64_t i = 0; i < count; ++i) {
        std::copy_n(total + i * kFp8Columns, width, c + (i0 + i) * stride + p * kFp8Columns);
      }
    }
  }
}

void fp8_codes(const float* __restrict from, std::int64_t n, int k, const Fp8Type& type,
               std::uint8_t* __restrict to) {
  const float factor = power_of_two(k);
  const int fraction = type.fraction, bias = type.bias, top = type.top;
  for (std::int64_t e = 0; e < n; ++e) {
    const std::uint32_t v = bits(mul(from[e], factor)), magnitude = v & 0x7fffffffu;
    const int field = static_cast<int>(magnitude >> 23);
    const int exponent = std::max(field, 1) - 127;
    const int unit = std::max(exponent, 1 - bias) - fraction;
    const std::uint32_t significand = (magnitude & 0x7fffffu) | (field > 0 ? 0x800000u : 0u);
    const int shift = std::min(unit - (exponent - 23), 26);  // Nothing is left at 26.
    const std::uint32_t half = std::uint32_t{1} << (shift - 1);
    const std::uint32_t rest = significand & (2 * half - 1), below = significand >> shift;
    const std::uint32_t up = rest + (below & 1) > half ? 1 : 0;  // A half itself goes to even.
    const int steps = std::max(exponent + bias - 1, 0) << fraction;
    const int code = std::min(steps + static_cast<int>(below + up), top);
    const int signed_code = code | static_cast<int>(v >> 31 << 7);
    to[e] = static_cast<std::uint8_t>(magnitude > 0x7f800000u ? kFp8Nan : signed_code);
  }
}

Fp8Form fastest_fp8() {
  static const Fp8Form form = supported(Fp8Form::avx512) ? Fp8Form::avx512
                              : supported(Fp8Form::avx2) ? Fp8Form::avx2
                                                         : Fp8Form::scalar;
  return form;
}

#if defined(__x86_64__)
bool supported(Fp8Form form) {
  if (form == Fp8Form::avx2)
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (form == Fp8Form::avx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  return true;
}
#else
bool supported(Fp8Form form) { return form == Fp8Form::scalar; }
#endif

}  // namespace lockstep::oracle
