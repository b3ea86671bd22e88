#include "kernels/activation.h"
#include "kernels/cuda/eights.cuh"

namespace lockstep {
namespace {

// A thread per eight neighbours. Rows of no document are not read.
template <class T>
__global__ void activation_forward(ActivationForward<T> op, bool wide) {
  start_after_last_kernel();
  const Eights e = own_eight(op.a.rows, op.a.cols);
  if (!e.inside) return;
  float a[kEight] = {};
  if (at(op.row_document, 0, e.row) >= 0) {
    float h[kEight];
    load_eight(h, &at(op.h, e.row, e.col), e.count, wide);
    if (op.kind == Activation::squared_relu) {
      each_of_eight([&](int k) { a[k] = h[k] > 0.0f ? mul(h[k], h[k]) : 0.0f; });
    } else {
      float up[kEight];
      load_eight(up, &at(op.h, e.row, op.a.cols + e.col), e.count, wide);
      each_of_eight([&](int k) { a[k] = mul(silu(h[k]), up[k]); });
    }
  }
  store_eight(&at(op.a, e.row, e.col), a, e.count, wide);
}

template <class T>
__global__ void activation_backward(ActivationBackward<T> op, bool wide) {
  start_after_last_kernel();
  const Eights e = own_eight(op.da.rows, op.da.cols);
  if (!e.inside) return;
  const bool real = at(op.row_document, 0, e.row) >= 0;
  const bool gated = op.kind == Activation::swiglu;
  float da[kEight] = {};
  float h[kEight] = {};
  float up[kEight] = {};
  if (real) {
    load_eight(da, &at(op.da, e.row, e.col), e.count, wide);
    load_eight(h, &at(op.h, e.row, e.col), e.count, wide);
    if (gated) load_eight(up, &at(op.h, e.row, op.da.cols + e.col), e.count, wide);
  }
  float dh[kEight];
  if (!gated) {
    each_of_eight([&](int k) { dh[k] = h[k] > 0.0f ? mul(mul(2.0f, h[k]), da[k]) : 0.0f; });
  } else {
    float dup[kEight];
    each_of_eight([&](int k) {
      dh[k] = real ? mul(mul(da[k], up[k]), dsilu(h[k])) : 0.0f;
      dup[k] = real ? mul(da[k], silu(h[k])) : 0.0f;
    });
    store_eight(&at(op.dh, e.row, op.da.cols + e.col), dup, e.count, wide);
  }
  store_eight(&at(op.dh, e.row, e.col), dh, e.count, wide);
}

// The second half of h begins as its rows do.
template <class T>
bool halves_move_16_bytes(std::int64_t cols) {
  return cols * static_cast<std::int64_t>(sizeof(T)) % 16 == 0;
}

}  // namespace

template <class T>
void run(CudaQueue queue, const ActivationForward<T>& op) {
  const bool wide = all_move_16_bytes(op.h, op.a) && halves_move_16_bytes<T>(op.a.cols);
  launch_eights(queue, op.a.rows, op.a.cols, activation_forward<T>, op, wide);
}
template <class T>
void run(CudaQueue queue, const ActivationBackward<T>& op) {
  const bool wide = all_move_16_bytes(op.h, op.da, op.dh) && halves_move_16_bytes<T>(op.da.cols);
  launch_eights(queue, op.da.rows, op.da.cols, activation_backward<T>, op, wide);
}
template void run(CudaQueue, const ActivationForward<float>&);
template void run(CudaQueue, const ActivationForward<bf16>&);
template void run(CudaQueue, const ActivationBackward<float>&);
template void run(CudaQueue, const ActivationBackward<bf16>&);

}  // namespace lockstep
