#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/mamba/conv_bf16.cuh"
#include "kernels/ops/conv.h"

namespace lockstep {
namespace {

// The first tap of row t that lies in its document: u >= first_tap reads row t - width + 1 + u.
template <class Op>
__device__ std::int64_t first_tap(const Op& op, std::int64_t t) {
  const std::int64_t before = op.weight.cols - 1 - at(op.row_position, 0, t);
  return before > 0 ? before : 0;
}
template <class Op>
__device__ float tap(const Op& op, std::int64_t t, std::int64_t u, std::int64_t c) {
  return load(at(op.x, t - op.weight.cols + 1 + u, c));
}
template <class Op>
__device__ float before_activation(const Op& op, std::int64_t t, std::int64_t c) {
  float a = at(op.bias, 0, c);
  for (std::int64_t u = first_tap(op, t); u < op.weight.cols; ++u)
    a = fma(at(op.weight, c, u), tap(op, t, u, c), a);
  return add(a, 0.0f);
}

template <class T>
__global__ void conv_forward(ConvForward<T> op) {
  pdl_begin();
  const Element e = own_element(op.y.rows, op.y.cols);
  if (!e.inside) return;
  float y = 0.0f;
  if (at(op.row_document, 0, e.row) >= 0) y = silu(before_activation(op, e.row, e.col));
  at(op.y, e.row, e.col) = st<T>(y);
}

template <class T>
__global__ void conv_backward_activation(ConvBackward<T> op) {
  pdl_begin();
  const Element e = own_element(op.dpre.rows, op.dpre.cols);
  if (!e.inside) return;
  float dpre = 0.0f;
  if (at(op.row_document, 0, e.row) >= 0) {
    dpre = mul(load(at(op.dy, e.row, e.col)), dsilu(before_activation(op, e.row, e.col)));
  }
  at(op.dpre, e.row, e.col) = dpre;
}

template <class T>
__global__ void conv_backward_input(ConvBackward<T> op) {
  pdl_begin();
  const Element e = own_element(op.dx.rows, op.dx.cols);
  if (!e.inside) return;
  const std::int32_t document = at(op.row_document, 0, e.row);
  const std::int64_t width = op.weight.cols;
  float a = 0.0f;
  if (document >= 0) {
    for (std::int64_t q = 0; q < width; ++q) {
      const std::int64_t row = e.row + q;
      if (row >= op.dx.rows || at(op.row_document, 0, row) != document) break;
      a = fma(at(op.weight, e.col, width - 1 - q), at(op.dpre, row, e.col), a);
    }
  }
  const T dx = st<T>(add(a, 0.0f));
  at(op.dx, e.row, e.col) = dx;
  if constexpr (std::is_same_v<T, bf16>) {
    if (op.amax.data != nullptr) raise_amax(op.amax.data, dx);
  }
}

// blockIdx.y is the tap u of the weight, or the bias after the last tap.
template <class T>
__global__ void conv_backward_parameters(ConvBackward<T> op) {
  pdl_begin();
  const std::int64_t c = own_column();
  const std::int64_t u = blockIdx.y;
  const bool inside = c < op.x.cols;
  const bool is_bias = u == op.weight.cols;
  const float sum = column_sum(op.x.rows, inside, [&](std::int64_t t, float p) {
    if (at(op.row_document, 0, t) < 0) return p;
    const float dpre = at(op.dpre, t, c);
    if (is_bias) return add(p, dpre);
    return u >= first_tap(op, t) ? add(p, mul(dpre, tap(op, t, u, c))) : p;
  });
  if (!inside || warp_index() != 0) return;
  if (is_bias) {
    store_gradient(op.dbias, op.bias_total, 0, c, sum);
  } else {
    store_gradient(op.dweight, op.weight_total, c, u, sum);
  }
}

}  // namespace

template <class T>
void run(CudaQueue queue, const ConvForward<T>& op) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (runs_in_vec4(op)) return run_in_vec4(queue, op);
  }
  launch_elements(queue, op.y.rows, op.y.cols, conv_forward<T>, op);
}
template <class T>
void run(CudaQueue queue, const ConvBackward<T>& op) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (runs_in_vec4(op)) return run_in_vec4(queue, op);
  }
  launch_elements(queue, op.x.rows, op.x.cols, conv_backward_activation<T>, op);
  launch_elements(queue, op.x.rows, op.x.cols, conv_backward_input<T>, op);
  const unsigned sums = static_cast<unsigned>(op.weight.cols) + 1;
  launch(queue, column_grid(op.x.cols, sums), dim3(kThreads), kPdl, conv_backward_parameters<T>,
         op);
}
template void run(CudaQueue, const ConvForward<float>&);
template void run(CudaQueue, const ConvForward<bf16>&);
template void run(CudaQueue, const ConvBackward<float>&);
template void run(CudaQueue, const ConvBackward<bf16>&);

}  // namespace lockstep
