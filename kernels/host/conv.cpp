#include "kernels/ops/conv.h"

#include <algorithm>
#include <vector>

#include "kernels/core/fault.h"
#include "kernels/core/reduce.h"
#include "kernels/host/chain.h"
#include "kernels/host/raise_amax.h"
#include "kernels/host/rows.h"

namespace lockstep {
namespace {

// Taps by tap: taps[u * channels + c], so that the channels lie side by side.
std::vector<float> taps_first(In<float> weight) {
  std::vector<float> taps(weight.rows * weight.cols);
  transpose(weight.rows, weight.cols, weight.data, weight.pitch, taps.data(), weight.rows);
  return taps;
}

// pre[t, :] of 2.7. The row's position says which taps lie in its document. `step` is 1: oldest tap
// first.
template <class T>
void convolve_row(In<T> x, In<float> bias, const float* taps, std::int64_t width, std::int64_t t,
                  std::int64_t position, int step, float* pre) {
  const std::int64_t channels = x.cols, count = std::min(width, position + 1);
  for (std::int64_t c = 0; c < channels; ++c) pre[c] = bias.data[c];
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int64_t u = step > 0 ? width - count + n : width - 1 - n;
    const T* row = x.row(t - width + 1 + u);
    const float* tap = taps + u * channels;
    for (std::int64_t c = 0; c < channels; ++c) pre[c] = fma(tap[c], load(row[c]), pre[c]);
  }
  add_zero(channels, pre);
}

// dx[t, :]: the outputs t + q of the same document that read row t.
template <class T>
void input_gradient_row(const ConvBackward<T>& op, const float* taps, std::int64_t t, float* a) {
  const std::int64_t channels = op.x.cols, width = op.weight.cols;
  const std::int32_t own = op.row_document.data[t];
  set_zero(channels, a);
  for (std::int64_t q = 0; q < width && t + q < op.x.rows; ++q) {
    const std::int32_t there = op.row_document.data[t + q];
    const std::int32_t document =
        faulty("conv-backward-crosses-boundary", there, there >= 0 ? own : there);
    if (document != own) break;
    const float* tap = taps + (width - 1 - q) * channels;
    const float* dpre = op.dpre.row(t + q);
    for (std::int64_t c = 0; c < channels; ++c) a[c] = fma(tap[c], dpre[c], a[c]);
  }
  add_zero(channels, a);
}

}  // namespace

template <class T>
void run(HostQueue, const ConvForward<T>& op) {
  const std::int64_t channels = op.x.cols, width = op.weight.cols;
  const int step = faulty("conv-newest-tap-first", 1, -1);
  const std::vector<float> taps = taps_first(op.weight);
  std::vector<float> pre(channels);
  for (std::int64_t t = 0; t < op.x.rows; ++t) {
    T* y = op.y.row(t);
    if (op.row_document.data[t] < 0) {
      store_zero(channels, y);
      continue;
    }
    const auto position =
        faulty<std::int64_t>("conv-tap-crosses-boundary", op.row_position.data[t], t);
    convolve_row(op.x, op.bias, taps.data(), width, t, position, step, pre.data());
    for (std::int64_t c = 0; c < channels; ++c) y[c] = st<T>(silu(pre[c]));
  }
}

template <class T>
void run(HostQueue, const ConvBackward<T>& op) {
  const std::int64_t rows = op.x.rows, channels = op.x.cols, width = op.weight.cols;
  const std::vector<float> taps = taps_first(op.weight);
  std::vector<float> row(channels);
  for (std::int64_t t = 0; t < rows; ++t) {
    float* dpre = op.dpre.row(t);
    store_zero(channels, dpre);
    if (op.row_document.data[t] < 0) continue;
    convolve_row(op.x, op.bias, taps.data(), width, t, op.row_position.data[t], 1, row.data());
    const T* dy = op.dy.row(t);
    for (std::int64_t c = 0; c < channels; ++c) dpre[c] = mul(load(dy[c]), dsilu(row[c]));
  }
  for (std::int64_t t = 0; t < rows; ++t) {
    if (op.row_document.data[t] < 0) {
      store_zero(channels, op.dx.row(t));
      continue;
    }
    input_gradient_row(op, taps.data(), t, row.data());
    store_row(channels, row.data(), op.dx.row(t));
  }
  raise_amax(op, op.dx);
  column_sums(rows, channels, op.dbias.data, [&](std::int64_t t, float* p) {
    if (op.row_document.data[t] < 0) return;
    const float* dpre = op.dpre.row(t);
    for (std::int64_t c = 0; c < channels; ++c) p[c] = add(p[c], dpre[c]);
  });
  for (std::int64_t u = 0; u < width; ++u) {
    column_sums(rows, channels, row.data(), [&](std::int64_t t, float* p) {
      const std::int64_t source = t - width + 1 + u;
      if (op.row_document.data[t] < 0 || source < 0) return;
      const std::int32_t own = op.row_position.data[t];
      const auto position = faulty<std::int64_t>("conv-weight-gradient-crosses-boundary", own, t);
      if (position < width - 1 - u) return;
      const float* dpre = op.dpre.row(t);
      const T* x = op.x.row(source);
      for (std::int64_t c = 0; c < channels; ++c) p[c] = add(p[c], mul(dpre[c], load(x[c])));
    });
    for (std::int64_t c = 0; c < channels; ++c) op.dweight.row(c)[u] = row[c];
  }
  add_to_total(op.dweight, op.weight_total);
  add_to_total(op.dbias, op.bias_total);
}

template void run(HostQueue, const ConvForward<float>&);
template void run(HostQueue, const ConvForward<bf16>&);
template void run(HostQueue, const ConvBackward<float>&);
template void run(HostQueue, const ConvBackward<bf16>&);

}  // namespace lockstep
