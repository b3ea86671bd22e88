#include "kernels/cuda/common/raise_amax.cuh"
#include "kernels/cuda/common/vec8.cuh"
#include "kernels/ops/residual.h"

namespace lockstep {
namespace {

// drop(x) of eight neighbours in a row that belongs to a document.
template <class Op>
__device__ void drop_vec8(const Op& op, const Vec8s& e, float (&x)[kVec8]) {
  if (!op.dropout.active) return;
  const auto number = static_cast<std::uint32_t>(at(op.row_number, 0, e.row));
  const auto position = static_cast<std::uint32_t>(at(op.row_position, 0, e.row));
  each_vec8([&](int k) {
    x[k] = drop(op.dropout, op.state.data[0], number, position,
                static_cast<std::uint32_t>(e.col + k), x[k]);
  });
}

// Elements are loaded together with the row's document, not after it.
template <class T>
__global__ void residual_forward(ResidualForward<T> op, bool wide) {
  pdl_begin();
  const Vec8s e = own_vec8(op.out.rows, op.out.cols);
  if (!e.inside) return;
  float out[kVec8];
  float y[kVec8];
  load_vec8(out, &at(op.residual, e.row, e.col), e.count, wide);
  load_vec8(y, &at(op.y, e.row, e.col), e.count, wide);
  const bool real = at(op.row_document, 0, e.row) >= 0;
  if (real) drop_vec8(op, e, y);
  each_vec8([&](int k) { out[k] = real ? add(out[k], y[k]) : 0.0f; });
  store_vec8(&at(op.out, e.row, e.col), out, e.count, wide);
}

template <class T>
__global__ void residual_backward(ResidualBackward<T> op, bool wide) {
  pdl_begin();
  const Vec8s e = own_vec8(op.dy.rows, op.dy.cols);
  if (!e.inside) return;
  float dy[kVec8];
  load_vec8(dy, &at(op.dout, e.row, e.col), e.count, wide);
  const bool real = at(op.row_document, 0, e.row) >= 0;
  if (real) drop_vec8(op, e, dy);
  each_vec8([&](int k) { dy[k] = real ? dy[k] : 0.0f; });
  store_vec8(&at(op.dy, e.row, e.col), dy, e.count, wide);
  if (op.amax.data == nullptr) return;
  StoredMagnitudes stored;
  stored.take_vec8<T>(dy);
  raise_amax(op.amax.data, stored);
}

}  // namespace

template <class T>
void run(CudaQueue queue, const ResidualForward<T>& op) {
  launch_vec8(queue, op.out.rows, op.out.cols, residual_forward<T>, op,
              all_vectorizable(op.residual, op.y, op.out));
}
template <class T>
void run(CudaQueue queue, const ResidualBackward<T>& op) {
  launch_vec8(queue, op.dy.rows, op.dy.cols, residual_backward<T>, op,
              all_vectorizable(op.dout, op.dy));
}
template void run(CudaQueue, const ResidualForward<float>&);
template void run(CudaQueue, const ResidualForward<bf16>&);
template void run(CudaQueue, const ResidualBackward<float>&);
template void run(CudaQueue, const ResidualBackward<bf16>&);

}  // namespace lockstep
