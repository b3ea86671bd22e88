#include "kernels/ops/linear.h"

#include <vector>

#include "kernels/core/fault.h"
#include "kernels/host/view.h"

namespace lockstep {

template <class T>
void run(HostQueue, const LinearForward<T>& op) {
  const std::int64_t inputs = op.x.cols - (fault("linear-drops-last-input") ? 1 : 0);
  product(op.x.rows, op.w.rows, inputs, View<T>{op.x.data, op.x.pitch, 1}, View<T>{op.w.data, 1, op.w.pitch}, op.y.data,
          op.y.pitch);
}
template <class T>
void run(HostQueue, const LinearInputGradient<T>& op) {
  const std::int64_t outputs = op.dy.cols - (fault("linear-input-gradient-drops-last-output") ? 1 : 0);
  product(op.dy.rows, op.w.cols, outputs, View<T>{op.dy.data, op.dy.pitch, 1}, View<T>{op.w.data, op.w.pitch, 1},
          op.dx.data, op.dx.pitch);
}
template <class T>
void run(HostQueue, const LinearWeightGradient<T>& op) {
  View<T> dy{op.dy.data, 1, op.dy.pitch}, x{op.x.data, op.x.pitch, 1};
  if (fault("linear-weight-gradient-sums-backwards")) {
    dy = {op.dy.row(op.dy.rows - 1), 1, -op.dy.pitch};
    x = {op.x.row(op.x.rows - 1), -op.x.pitch, 1};
  }
  const std::int64_t rows = op.dy.rows - (fault("linear-weight-gradient-drops-first-row") ? 1 : 0);
  if (rows < op.dy.rows) dy.data += op.dy.pitch, x.data += op.x.pitch;
  if (op.dw) return product(op.dy.cols, op.x.cols, rows, dy, x, op.dw.data, op.dw.pitch);
  std::vector<float> dw(static_cast<std::size_t>(op.acc.rows * op.acc.cols));
  product(op.dy.cols, op.x.cols, rows, dy, x, dw.data(), op.acc.cols);
  const bool overwrites = fault("linear-weight-gradient-forgets-accumulator");
  for (std::int64_t o = 0; o < op.acc.rows; ++o) {
    const float* g = dw.data() + o * op.acc.cols;
    float* acc = op.acc.row(o);
    for (std::int64_t k = 0; k < op.acc.cols; ++k) acc[k] = overwrites ? g[k] : add(acc[k], g[k]);
  }
}

template void run(HostQueue, const LinearForward<float>&);
template void run(HostQueue, const LinearForward<bf16>&);
template void run(HostQueue, const LinearInputGradient<float>&);
template void run(HostQueue, const LinearInputGradient<bf16>&);
template void run(HostQueue, const LinearWeightGradient<float>&);
template void run(HostQueue, const LinearWeightGradient<bf16>&);

}  // namespace lockstep
