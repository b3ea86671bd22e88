#include "kernels/ops/activation.h"

#include "kernels/core/fault.h"
#include "kernels/host/rows.h"

namespace lockstep {
namespace {

template <class T>
void forward_row(Activation kind, std::int64_t width, const T* __restrict h, T* __restrict a) {
  if (kind == Activation::squared_relu) {
    for (std::int64_t e = 0; e < width; ++e) {
      const float x = load(h[e]);
      a[e] = st<T>(x > 0.0f ? mul(x, x) : 0.0f);
    }
  } else {
    for (std::int64_t e = 0; e < width; ++e) a[e] = st<T>(mul(silu(load(h[e])), load(h[width + e])));
  }
}

template <class T>
void backward_row(Activation kind, std::int64_t width, const T* __restrict h, const T* __restrict da,
                  T* __restrict dh) {
  if (kind == Activation::squared_relu) {
    for (std::int64_t e = 0; e < width; ++e) {
      const float x = load(h[e]);
      dh[e] = st<T>(x > 0.0f ? mul(mul(2.0f, x), load(da[e])) : 0.0f);
    }
  } else {
    for (std::int64_t e = 0; e < width; ++e) {
      dh[e] = st<T>(mul(mul(load(da[e]), load(h[width + e])), dsilu(load(h[e]))));
      dh[width + e] = st<T>(mul(load(da[e]), silu(load(h[e]))));
    }
  }
}

}  // namespace

template <class T>
void run(HostQueue, const ActivationForward<T>& op) {
  const bool swaps = fault("activation-confuses-kinds") && op.kind == Activation::swiglu;
  const bool saturates = fault("activation-gate-saturates") && op.kind == Activation::swiglu;
  const bool forgets_square = fault("activation-forgets-square") && op.kind == Activation::squared_relu;
  for (std::int64_t i = 0; i < op.a.rows; ++i) {
    if (op.row_document.data[i] < 0) {
      store_zero(op.a.cols, op.a.row(i));
      continue;
    }
    forward_row(swaps ? Activation::squared_relu : op.kind, op.a.cols, op.h.row(i), op.a.row(i));
    for (std::int64_t e = 0; forgets_square && e < op.a.cols; ++e)
      op.a.row(i)[e] = st<T>(max(load(op.h.row(i)[e]), 0.0f));
    for (std::int64_t e = 0; saturates && e < op.a.cols; ++e)
      if (load(op.h.row(i)[e]) < -16.0f) op.a.row(i)[e] = st<T>(0.0f);
  }
}

template <class T>
void run(HostQueue, const ActivationBackward<T>& op) {
  const bool as_of_next_row = fault("activation-backward-reads-next-row");
  for (std::int64_t i = 0; i < op.da.rows; ++i) {
    const std::int64_t source = as_of_next_row && i + 1 < op.da.rows ? i + 1 : i;
    if (op.row_document.data[i] < 0) {
      store_zero(op.dh.cols, op.dh.row(i));
    } else {
      backward_row(op.kind, op.da.cols, op.h.row(source), op.da.row(i), op.dh.row(i));
    }
  }
}

template void run(HostQueue, const ActivationForward<float>&);
template void run(HostQueue, const ActivationForward<bf16>&);
template void run(HostQueue, const ActivationBackward<float>&);
template void run(HostQueue, const ActivationBackward<bf16>&);

}  // namespace lockstep
