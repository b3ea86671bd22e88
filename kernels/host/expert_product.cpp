#include "kernels/moe/expert_product.h"

#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "kernels/host/rows.h"
#include "kernels/host/view.h"

namespace lockstep {
namespace {

// body(e, first row, rows) for every expert that has rows.
template <class Op, class Body>
void for_experts(const Op& op, std::int64_t buffer_rows, const Body& body) {
  for (std::int64_t e = 0; e < op.start.cols; ++e) {
    const std::int64_t first = op.start.data[e], rows = op.rows.data[e];
    require(first >= 0 && rows >= 0 && first + rows <= buffer_rows,
            "an expert's rows lie in the buffer");
    if (rows > 0) body(e, first, rows);
  }
}

template <class T>
void clear_padding(const In<std::int32_t>& row_pair, const Out<T>& out) {
  for (std::int64_t r = 0; r < out.rows; ++r) {
    if (row_pair.data[r] < 0) store_zero(out.cols, out.row(r));
  }
}

}  // namespace

template <class T>
void run(HostQueue, const ExpertForward<T>& op) {
  const std::int64_t experts = op.start.cols, outputs = op.y.cols;
  clear_padding(op.row_pair, op.y);
  for_experts(op, op.y.rows, [&](std::int64_t e, std::int64_t first, std::int64_t rows) {
    const std::int64_t expert =
        faulty("expert-forward-takes-the-next-expert", e, (e + 1) % experts);
    const T* w = op.w.row(expert * outputs);
    product(rows, outputs, op.x.cols, View<T>{op.x.row(first), op.x.pitch, 1},
            View<T>{w, 1, op.w.pitch}, op.y.row(first), op.y.pitch);
  });
}

template <class T>
void run(HostQueue, const ExpertInputGradient<T>& op) {
  const std::int64_t outputs = op.dy.cols;
  const std::int64_t used = outputs - faulty("expert-input-gradient-drops-last-output", 0, 1);
  clear_padding(op.row_pair, op.dx);
  for_experts(op, op.dx.rows, [&](std::int64_t e, std::int64_t first, std::int64_t rows) {
    product(rows, op.dx.cols, used, View<T>{op.dy.row(first), op.dy.pitch, 1},
            View<T>{op.w.row(e * outputs), op.w.pitch, 1}, op.dx.row(first), op.dx.pitch);
  });
}

template <class T>
void run(HostQueue, const ExpertWeightGradient<T>& op) {
  const std::int64_t outputs = op.dy.cols;
  const std::int64_t dropped = faulty("expert-weight-gradient-drops-first-row", 0, 1);
  for (std::int64_t o = 0; o < op.dw.rows; ++o) store_zero(op.dw.cols, op.dw.row(o));
  for_experts(op, op.dy.rows, [&](std::int64_t e, std::int64_t begin, std::int64_t count) {
    const std::int64_t first = begin + dropped, rows = count - dropped;
    if (rows == 0) return;
    product(outputs, op.dw.cols, rows, View<T>{op.dy.row(first), 1, op.dy.pitch},
            View<T>{op.x.row(first), op.x.pitch, 1}, op.dw.row(e * outputs), op.dw.pitch);
  });
}

template void run(HostQueue, const ExpertForward<float>&);
template void run(HostQueue, const ExpertForward<bf16>&);
template void run(HostQueue, const ExpertInputGradient<float>&);
template void run(HostQueue, const ExpertInputGradient<bf16>&);
template void run(HostQueue, const ExpertWeightGradient<float>&);
template void run(HostQueue, const ExpertWeightGradient<bf16>&);

}  // namespace lockstep
