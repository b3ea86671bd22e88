#include "kernels/ops/linear.h"

#include <vector>

#include "kernels/core/fault.h"
#include "kernels/host/view.h"

namespace lockstep {

template <class T>
void run(HostQueue, const LinearForward<T>& op) {
  const std::int64_t inputs = op.x.cols - faulty("linear-drops-last-input", 0, 1);
  product(op.x.rows, op.w.rows, inputs, View<T>{op.x.data, op.x.pitch, 1},
          View<T>{op.w.data, 1, op.w.pitch}, op.y.data, op.y.pitch);
}
template <class T>
void run(HostQueue, const LinearInputGradient<T>& op) {
  const std::int64_t outputs = op.dy.cols - faulty("linear-input-gradient-drops-last-output", 0, 1);
  product(op.dy.rows, op.w.cols, outputs, View<T>{op.dy.data, op.dy.pitch, 1},
          View<T>{op.w.data, op.w.pitch, 1}, op.dx.data, op.dx.pitch);
}
static void accumulate(Accum<float> to, const float* dw) {
  const bool adds = faulty("linear-weight-gradient-forgets-accumulator", true, false);
  for (std::int64_t o = 0; o < to.rows; ++o) {
    const float* g = dw + o * to.cols;
    float* acc = to.row(o);
    for (std::int64_t k = 0; k < to.cols; ++k) acc[k] = adds ? add(acc[k], g[k]) : g[k];
  }
}

template <class T>
void run(HostQueue, const LinearWeightGradient<T>& op) {
  const std::int64_t dropped = faulty("linear-weight-gradient-drops-first-row", 0, 1),
                     rows = op.dy.rows - dropped;
  const std::int64_t step = faulty("linear-weight-gradient-sums-backwards", 1, -1);
  const std::int64_t first = step > 0 ? dropped : op.dy.rows - 1;
  const View<T> dy{op.dy.row(first), 1, step * op.dy.pitch},
      x{op.x.row(first), step * op.x.pitch, 1};
  if (op.dw) return product(op.dy.cols, op.x.cols, rows, dy, x, op.dw.data, op.dw.pitch);
  std::vector<float> dw(op.acc.rows * op.acc.cols);
  product(op.dy.cols, op.x.cols, rows, dy, x, dw.data(), op.acc.cols);
  accumulate(op.acc, dw.data());
}

template void run(HostQueue, const LinearForward<float>&);
template void run(HostQueue, const LinearForward<bf16>&);
template void run(HostQueue, const LinearInputGradient<float>&);
template void run(HostQueue, const LinearInputGradient<bf16>&);
template void run(HostQueue, const LinearWeightGradient<float>&);
template void run(HostQueue, const LinearWeightGradient<bf16>&);

}  // namespace lockstep
