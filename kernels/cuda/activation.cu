#include "kernels/activation.h"
#include "kernels/cuda/element.cuh"

namespace lockstep {
namespace {

template <class T>
__global__ void activation_forward(ActivationForward<T> op) {
  const Element e = own_element(op.a.rows, op.a.cols);
  if (!e.inside) return;
  float a = 0.0f;
  if (at(op.row_document, 0, e.row) >= 0) {
    const float h = load(at(op.h, e.row, e.col));
    if (op.kind == Activation::squared_relu) {
      a = h > 0.0f ? mul(h, h) : 0.0f;
    } else {
      a = mul(silu(h), load(at(op.h, e.row, op.a.cols + e.col)));
    }
  }
  at(op.a, e.row, e.col) = st<T>(a);
}

template <class T>
__global__ void activation_backward(ActivationBackward<T> op) {
  const Element e = own_element(op.da.rows, op.da.cols);
  if (!e.inside) return;
  const bool real = at(op.row_document, 0, e.row) >= 0;
  const float da = real ? load(at(op.da, e.row, e.col)) : 0.0f;
  const float h = real ? load(at(op.h, e.row, e.col)) : 0.0f;
  if (op.kind == Activation::squared_relu) {
    at(op.dh, e.row, e.col) = st<T>(h > 0.0f ? mul(mul(2.0f, h), da) : 0.0f);
    return;
  }
  const std::int64_t up = op.da.cols + e.col;
  const float u = real ? load(at(op.h, e.row, up)) : 0.0f;
  at(op.dh, e.row, e.col) = st<T>(real ? mul(mul(da, u), dsilu(h)) : 0.0f);
  at(op.dh, e.row, up) = st<T>(real ? mul(da, silu(h)) : 0.0f);
}

}  // namespace

template <class T>
void run(CudaQueue queue, const ActivationForward<T>& op) {
  launch_elements(queue, op.a.rows, op.a.cols, activation_forward<T>, op);
}
template <class T>
void run(CudaQueue queue, const ActivationBackward<T>& op) {
  launch_elements(queue, op.da.rows, op.da.cols, activation_backward<T>, op);
}
template void run(CudaQueue, const ActivationForward<float>&);
template void run(CudaQueue, const ActivationForward<bf16>&);
template void run(CudaQueue, const ActivationBackward<float>&);
template void run(CudaQueue, const ActivationBackward<bf16>&);

}  // namespace lockstep
