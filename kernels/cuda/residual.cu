#include "kernels/cuda/element.cuh"
#include "kernels/residual.h"

namespace lockstep {
namespace {

// drop(x) of an element of a row that belongs to a document.
template <class Op>
__device__ float dropped(const Op& op, const Element& e, float x) {
  return drop(op.dropout, op.state.data[0], static_cast<std::uint32_t>(at(op.row_number, 0, e.row)),
              static_cast<std::uint32_t>(at(op.row_position, 0, e.row)), static_cast<std::uint32_t>(e.col), x);
}

template <class T>
__global__ void residual_forward(ResidualForward<T> op) {
  const Element e = own_element(op.out.rows, op.out.cols);
  if (!e.inside) return;
  float out = 0.0f;
  if (at(op.row_document, 0, e.row) >= 0) {
    out = add(load(at(op.residual, e.row, e.col)), dropped(op, e, load(at(op.y, e.row, e.col))));
  }
  at(op.out, e.row, e.col) = st<T>(out);
}

template <class T>
__global__ void residual_backward(ResidualBackward<T> op) {
  const Element e = own_element(op.dy.rows, op.dy.cols);
  if (!e.inside) return;
  float dy = 0.0f;
  if (at(op.row_document, 0, e.row) >= 0) dy = dropped(op, e, load(at(op.dout, e.row, e.col)));
  at(op.dy, e.row, e.col) = st<T>(dy);
}

}  // namespace

template <class T>
void run(CudaQueue queue, const ResidualForward<T>& op) {
  launch_elements(queue, op.out.rows, op.out.cols, residual_forward<T>, op);
}
template <class T>
void run(CudaQueue queue, const ResidualBackward<T>& op) {
  launch_elements(queue, op.dy.rows, op.dy.cols, residual_backward<T>, op);
}
template void run(CudaQueue, const ResidualForward<float>&);
template void run(CudaQueue, const ResidualForward<bf16>&);
template void run(CudaQueue, const ResidualBackward<float>&);
template void run(CudaQueue, const ResidualBackward<bf16>&);

}  // namespace lockstep
