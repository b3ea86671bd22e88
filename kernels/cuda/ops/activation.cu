#include "kernels/cuda/common/raise_amax.cuh"
#include "kernels/cuda/common/vec8.cuh"
#include "kernels/ops/activation.h"

namespace lockstep {
namespace {

// One thread per eight neighbours. It issues all loads before it waits for one, and so also loads
// rows of no document, which it discards. kWide: all eights are whole, at multiples of 16 bytes.
template <class T, bool kWide>
__global__ void activation_forward(ActivationForward<T> op) {
  pdl_begin();
  const Vec8s e = own_vec8(op.a.rows, op.a.cols);
  if (!e.inside) return;
  const std::int64_t count = kWide ? kVec8 : e.count;
  const bool real = at(op.row_document, 0, e.row) >= 0;
  const bool gated = op.kind == Activation::swiglu;
  StoredVec8<T> up = {};
  const StoredVec8<T> h = stored_vec8<kWide>(&at(op.h, e.row, e.col), count);
  if (gated) up = stored_vec8<kWide>(&at(op.h, e.row, op.a.cols + e.col), count);
  float a[kVec8];
  if (!gated) {
    each_vec8([&](int k) {
      const float square = mul(h[k], h[k]);
      a[k] = real & (h[k] > 0.0f) ? square : 0.0f;
    });
  } else {
    each_vec8([&](int k) { a[k] = real ? mul(silu(h[k]), up[k]) : 0.0f; });
  }
  store_vec8(&at(op.a, e.row, e.col), a, count, kWide);
  if (op.amax.data == nullptr) return;
  StoredMagnitudes stored;
  stored.take_vec8<T>(a);
  raise_amax_of_row(op, e.row, stored);
}

template <class T, bool kWide>
__global__ void activation_backward(ActivationBackward<T> op) {
  pdl_begin();
  const Vec8s e = own_vec8(op.da.rows, op.da.cols);
  if (!e.inside) return;
  const std::int64_t count = kWide ? kVec8 : e.count;
  const bool real = at(op.row_document, 0, e.row) >= 0;
  const bool gated = op.kind == Activation::swiglu;
  StoredVec8<T> up = {};
  const StoredVec8<T> da = stored_vec8<kWide>(&at(op.da, e.row, e.col), count);
  const StoredVec8<T> h = stored_vec8<kWide>(&at(op.h, e.row, e.col), count);
  if (gated) up = stored_vec8<kWide>(&at(op.h, e.row, op.da.cols + e.col), count);
  float dh[kVec8], dup[kVec8] = {};
  if (!gated) {
    each_vec8([&](int k) {
      const float slope = mul(mul(2.0f, h[k]), da[k]);
      dh[k] = real & (h[k] > 0.0f) ? slope : 0.0f;
    });
  } else {
    each_vec8([&](int k) {
      dh[k] = real ? mul(mul(da[k], up[k]), dsilu(h[k])) : 0.0f;
      dup[k] = real ? mul(da[k], silu(h[k])) : 0.0f;
    });
    store_vec8(&at(op.dh, e.row, op.da.cols + e.col), dup, count, kWide);
  }
  store_vec8(&at(op.dh, e.row, e.col), dh, count, kWide);
  if (op.amax.data == nullptr) return;
  StoredMagnitudes stored;
  stored.take_vec8<T>(dh);
  stored.take_vec8<T>(dup);
  raise_amax_of_row(op, e.row, stored);
}

}  // namespace

template <class T>
void run(CudaQueue queue, const ActivationForward<T>& op) {
  const bool wide = all_vectorizable(op.h, op.a) && op.a.cols % kVec8 == 0;
  launch_vec8(queue, op.a.rows, op.a.cols,
              wide ? activation_forward<T, true> : activation_forward<T, false>, op);
}
template <class T>
void run(CudaQueue queue, const ActivationBackward<T>& op) {
  const bool wide = all_vectorizable(op.h, op.da, op.dh) && op.da.cols % kVec8 == 0;
  launch_vec8(queue, op.da.rows, op.da.cols,
              wide ? activation_backward<T, true> : activation_backward<T, false>, op);
}
template void run(CudaQueue, const ActivationForward<float>&);
template void run(CudaQueue, const ActivationForward<bf16>&);
template void run(CudaQueue, const ActivationBackward<float>&);
template void run(CudaQueue, const ActivationBackward<bf16>&);

}  // namespace lockstep
