#include "oracle/arithmetic/fda16_fast.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "oracle/arithmetic/fda16.h"
#include "oracle/arithmetic/fda16_tile.h"

namespace lockstep::oracle {

namespace {

std::int32_t stored_exponent(float x) {
  const std::uint32_t u = bits(x);
  const auto field = static_cast<std::int32_t>((u >> 23) & 255u);
  const std::int32_t exponent = field == 0 ? -126 : field - 127;
  return field == 255 ? kFda16Special : (u << 1) == 0 ? kFda16Zero : exponent;
}

std::int32_t twice(std::int32_t exponent) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(exponent & 0xffff) * 0x10001u);
}

void require_bf16(std::uint32_t seen) {
  if ((seen & 0xffffu) != 0) throw std::logic_error("a factor of a product is not a bf16 number");
}

// The right factor in panels of 16 columns: [panel][k][column], zeros beyond the last column.
class RightPanels {
 public:
  RightPanels(Right<float> from, std::int64_t depth, std::int64_t cols)
      : depth_(depth), panels_((cols + kTileColumns - 1) / kTileColumns) {
    const std::size_t size = panels_ * depth * kTileColumns;
    values_ = std::make_unique_for_overwrite<float[]>(size);
    exponents_ = std::make_unique_for_overwrite<std::int16_t[]>(size);
    std::uint32_t seen = 0;
    for (std::int64_t p = 0; p < panels_; ++p) {
      const std::int64_t count = std::min<std::int64_t>(kTileColumns, cols - p * kTileColumns);
      for (std::int64_t k = 0; k < depth; ++k)
        seen |= pack(from.at + k * from.term + p * kTileColumns, count, p, k);
    }
    require_bf16(seen);
  }
  std::int64_t panels() const { return panels_; }
  const float* values(std::int64_t panel) const {
    return values_.get() + panel * depth_ * kTileColumns;
  }
  const std::int16_t* exponents(std::int64_t panel) const {
    return exponents_.get() + panel * depth_ * kTileColumns;
  }

 private:
  std::uint32_t pack(const float* from, std::int64_t count, std::int64_t panel, std::int64_t k) {
    float* to = values_.get() + (panel * depth_ + k) * kTileColumns;
    std::int16_t* exponents = exponents_.get() + (panel * depth_ + k) * kTileColumns;
    for (std::int64_t j = 0; j < kTileColumns; ++j) to[j] = j < count ? from[j] : 0.0f;
    std::uint32_t seen = 0;
    for (int j = 0; j < kTileColumns; ++j) {
      seen |= bits(to[j]);
      exponents[j] = static_cast<std::int16_t>(stored_exponent(to[j]));
    }
    return seen;
  }

  std::int64_t depth_, panels_;
  std::unique_ptr<float[]> values_;
  std::unique_ptr<std::int16_t[]> exponents_;
};

// The left factors of a tile's rows. Only terms that a row takes are read.
class LeftRows {
 public:
  explicit LeftRows(std::int64_t depth)
      : depth_(depth),
        values_(std::make_unique_for_overwrite<float[]>(depth * kTileRows)),
        exponents_(std::make_unique_for_overwrite<std::int32_t[]>(depth * kTileRows)) {}

  void pack(Left<float> a, const Terms& terms, std::int64_t i0, std::int64_t count) {
    std::uint32_t seen = 0;
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t i = i0 + r;
      first[r] = std::max<std::int64_t>(0, terms.first + i * terms.first_step);
      last[r] = std::min<std::int64_t>(depth_, terms.last + i * terms.last_step);
      const float* from = a.at + i * a.row;
      float* to = values_.get() + r * depth_;
      std::int32_t* exponents = exponents_.get() + r * depth_;
      for (std::int64_t k = first[r]; k < last[r]; ++k) {
        to[k] = from[k * a.term];
        seen |= bits(to[k]);
        exponents[k] = twice(stored_exponent(to[k]));
      }
    }
    require_bf16(seen);
  }
  const float* values() const { return values_.get(); }
  const std::int32_t* exponents() const { return exponents_.get(); }

  std::int64_t first[kTileRows], last[kTileRows];

 private:
  std::int64_t depth_;
  std::unique_ptr<float[]> values_;
  std::unique_ptr<std::int32_t[]> exponents_;
};

void run(const Fda16Tile& tile, Fda16Form form) {
  if (form == Fda16Form::avx512) return fda16_tile_avx512(tile);
  if (form == Fda16Form::avx2) return fda16_tile_avx2(tile);
  fda16_tile_scalar(tile);
}

}  // namespace

void fda16_step_scalar(const float* a, const float* b, int count, float* c) {
  std::uint16_t left[16], right[16];
  for (int k = 0; k < count; ++k) left[k] = static_cast<std::uint16_t>(bits(a[k]) >> 16);
  for (int j = 0; j < kTileColumns; ++j) {
    for (int k = 0; k < count; ++k)
      right[k] = static_cast<std::uint16_t>(bits(b[k * kTileColumns + j]) >> 16);
    c[j] = fda16(left, right, count, c[j]);
  }
}

void fda16_tile_scalar(const Fda16Tile& tile) {
  for (std::int64_t k0 = 0; k0 < tile.depth; k0 += 16) {
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const std::int64_t k = std::max(tile.first[i], k0), end = std::min(tile.last[i], k0 + 16);
      if (k >= end) continue;
      fda16_step_scalar(tile.a + i * tile.depth + k, tile.b + k * kTileColumns,
                        static_cast<int>(end - k), tile.c + i * kTileColumns);
    }
  }
}

void fda16_dots(std::int64_t rows, std::int64_t cols, const Terms& terms, std::int64_t depth,
                Left<float> a, Right<float> b, float* c, std::int64_t stride, Chain chain,
                Fda16Form form) {
  const bool starts = chain == Chain::whole || chain == Chain::first;
  const bool ends = chain == Chain::whole || chain == Chain::last;
  const RightPanels right(b, depth, cols);
  LeftRows left(depth);
  alignas(64) float sums[kTileRows * kTileColumns];
  for (std::int64_t i0 = 0; i0 < rows; i0 += kTileRows) {
    const std::int64_t count = std::min<std::int64_t>(kTileRows, rows - i0);
    left.pack(a, terms, i0, count);
    for (std::int64_t p = 0; p < right.panels(); ++p) {
      const std::int64_t width = std::min<std::int64_t>(kTileColumns, cols - p * kTileColumns);
      float* at = c + i0 * stride + p * kTileColumns;
      std::fill_n(sums, count * kTileColumns, 0.0f);
      for (std::int64_t i = 0; i < count && !starts; ++i)
        std::copy_n(at + i * stride, width, sums + i * kTileColumns);
      run({count, depth, left.values(), left.exponents(), right.values(p), right.exponents(p),
           left.first, left.last, sums},
          form);
      for (std::int64_t i = 0; i < count; ++i) {
        const float* from = sums + i * kTileColumns;
        for (std::int64_t j = 0; j < width; ++j)
          at[i * stride + j] = ends ? add(from[j], 0.0f) : from[j];
      }
    }
  }
}

Fda16Form fastest_fda16() {
  static const Fda16Form form = supported(Fda16Form::avx512) ? Fda16Form::avx512
                                : supported(Fda16Form::avx2) ? Fda16Form::avx2
                                                             : Fda16Form::scalar;
  return form;
}

#if defined(__x86_64__)
bool supported(Fda16Form form) {
  if (form == Fda16Form::avx2) return __builtin_cpu_supports("avx2") != 0;
  if (form == Fda16Form::avx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  return true;
}
#else
bool supported(Fda16Form form) { return form == Fda16Form::scalar; }
#endif

}  // namespace lockstep::oracle
