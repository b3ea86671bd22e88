#include "kernels/host/product.h"

#include <algorithm>
#include <vector>

#include "kernels/host/lanes.h"

namespace lockstep {
namespace {

constexpr int kTileRows = 6;
constexpr int kTileCols = 2 * kLanes;
constexpr std::int64_t kDepth =
    256;  // Links of a chain between two visits of its accumulator: panels stay in cache.

// panel[e * width + i] = (row i, step e), zero beyond `rows`.
void pack(std::int64_t rows, std::int64_t steps, const float* from, std::int64_t row_stride,
          std::int64_t step_stride, std::int64_t width, float* panel) {
  if (row_stride == 1 && rows == width) {
    for (std::int64_t e = 0; e < steps; ++e) {
      for (std::int64_t i = 0; i < width; ++i) panel[e * width + i] = from[e * step_stride + i];
    }
    return;
  }
  for (std::int64_t i = 0; i < width; ++i) {
    for (std::int64_t e = 0; e < steps; ++e) {
      panel[e * width + i] = i < rows ? from[i * row_stride + e * step_stride] : 0.0f;
    }
  }
}

// A chain starts at +0, and ends with + 0.
struct Links {
  std::int64_t steps;
  bool starts, ends;
};

// One 6 x 16 tile continues its chains.
void tile(const Links& links, const float* a, const float* b, float* c, std::int64_t c_pitch) {
  const Lanes zero = spread(0.0f);
  Lanes low[kTileRows], high[kTileRows];
#pragma GCC unroll 6
  for (int i = 0; i < kTileRows; ++i) {
    low[i] = links.starts ? zero : load_lanes(c + i * c_pitch);
    high[i] = links.starts ? zero : load_lanes(c + i * c_pitch + kLanes);
  }
  for (std::int64_t e = 0; e < links.steps; ++e) {
    const Lanes b_low = load_lanes(b + e * kTileCols);
    const Lanes b_high = load_lanes(b + e * kTileCols + kLanes);
#pragma GCC unroll 6
    for (int i = 0; i < kTileRows; ++i) {
      const Lanes x = spread(a[e * kTileRows + i]);
      low[i] = fma(x, b_low, low[i]);
      high[i] = fma(x, b_high, high[i]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kTileRows; ++i) {
    store_lanes(c + i * c_pitch, links.ends ? add(low[i], zero) : low[i]);
    store_lanes(c + i * c_pitch + kLanes, links.ends ? add(high[i], zero) : high[i]);
  }
}

// A tile at the border runs in a padded copy of its accumulators.
void border_tile(std::int64_t rows, std::int64_t cols, const Links& links, const float* a,
                 const float* b, float* c, std::int64_t c_pitch) {
  float padded[kTileRows * kTileCols] = {};
  if (!links.starts) {
    for (std::int64_t i = 0; i < rows; ++i)
      std::copy_n(c + i * c_pitch, cols, padded + i * kTileCols);
  }
  tile(links, a, b, padded, kTileCols);
  for (std::int64_t i = 0; i < rows; ++i)
    std::copy_n(padded + i * kTileCols, cols, c + i * c_pitch);
}

std::int64_t panels(std::int64_t size, std::int64_t width) { return (size + width - 1) / width; }

}  // namespace

void product(std::int64_t m, std::int64_t n, std::int64_t k, MatrixView a, MatrixView b, float* c,
             std::int64_t c_pitch) {
  thread_local std::vector<float> a_panels, b_panels;
  const std::int64_t depth = std::min(k, kDepth);
  a_panels.resize(panels(m, kTileRows) * kTileRows * depth);
  b_panels.resize(panels(n, kTileCols) * kTileCols * depth);
  for (std::int64_t i = 0; i < m && k == 0; ++i)
    std::fill_n(c + i * c_pitch, n, 0.0f);  // Chains of no link.
  for (std::int64_t first = 0; first < k; first += depth) {
    const std::int64_t steps = std::min(depth, k - first);
    const Links links{steps, first == 0, first + steps == k};
    for (std::int64_t i = 0; i < m; i += kTileRows) {
      pack(std::min<std::int64_t>(kTileRows, m - i), steps,
           a.data + i * a.row_stride + first * a.col_stride, a.row_stride, a.col_stride, kTileRows,
           a_panels.data() + i * depth);
    }
    for (std::int64_t j = 0; j < n; j += kTileCols) {
      pack(std::min<std::int64_t>(kTileCols, n - j), steps,
           b.data + j * b.col_stride + first * b.row_stride, b.col_stride, b.row_stride, kTileCols,
           b_panels.data() + j * depth);
    }
    for (std::int64_t j = 0; j < n; j += kTileCols) {
      const std::int64_t cols = std::min<std::int64_t>(kTileCols, n - j);
      for (std::int64_t i = 0; i < m; i += kTileRows) {
        const std::int64_t rows = std::min<std::int64_t>(kTileRows, m - i);
        const float* a_panel = a_panels.data() + i * depth;
        const float* b_panel = b_panels.data() + j * depth;
        float* to = c + i * c_pitch + j;
        if (rows == kTileRows && cols == kTileCols) {
          tile(links, a_panel, b_panel, to, c_pitch);
        } else {
          border_tile(rows, cols, links, a_panel, b_panel, to, c_pitch);
        }
      }
    }
  }
}

}  // namespace lockstep
