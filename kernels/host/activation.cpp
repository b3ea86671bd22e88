#include "kernels/ops/activation.h"

#include <algorithm>

#include "kernels/core/fault.h"
#include "kernels/host/raise_amax.h"
#include "kernels/host/rows.h"

namespace lockstep {
namespace {

template <class T>
void forward_row(Activation kind, std::int64_t width, const T* __restrict h, T* __restrict a) {
  if (kind == Activation::squared_relu) {
    const bool squares = faulty("activation-forgets-square", true, false);
    for (std::int64_t e = 0; e < width; ++e) {
      const float x = load(h[e]);
      a[e] = st<T>(x > 0.0f ? mul(x, squares ? x : 1.0f) : 0.0f);
    }
  } else {
    const float closed_below = faulty("activation-gate-saturates", neg(infinity()), -16.0f);
    for (std::int64_t e = 0; e < width; ++e) {
      const float gate = load(h[e]);
      a[e] = st<T>(gate < closed_below ? 0.0f : mul(silu(gate), load(h[width + e])));
    }
  }
}

template <class T>
void backward_row(Activation kind, std::int64_t width, const T* __restrict h,
                  const T* __restrict da, T* __restrict dh) {
  if (kind == Activation::squared_relu) {
    const float slope = faulty("activation-backward-forgets-two", 2.0f, 1.0f);
    for (std::int64_t e = 0; e < width; ++e) {
      const float x = load(h[e]);
      dh[e] = st<T>(x > 0.0f ? mul(mul(slope, x), load(da[e])) : 0.0f);
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
  const Activation kind = faulty("activation-confuses-kinds", op.kind, Activation::squared_relu);
  for (std::int64_t i = 0; i < op.a.rows; ++i) {
    if (op.row_document.data[i] < 0) {
      store_zero(op.a.cols, op.a.row(i));
      continue;
    }
    forward_row(kind, op.a.cols, op.h.row(i), op.a.row(i));
  }
  raise_amax(op, op.a);
}

template <class T>
void run(HostQueue, const ActivationBackward<T>& op) {
  for (std::int64_t i = 0; i < op.da.rows; ++i) {
    const std::int64_t source =
        faulty("activation-backward-reads-next-row", i, std::min(i + 1, op.da.rows - 1));
    if (op.row_document.data[i] < 0) {
      store_zero(op.dh.cols, op.dh.row(i));
    } else {
      backward_row(op.kind, op.da.cols, op.h.row(source), op.da.row(i), op.dh.row(i));
    }
  }
  raise_amax(op, op.dh);
}

template void run(HostQueue, const ActivationForward<float>&);
template void run(HostQueue, const ActivationForward<bf16>&);
template void run(HostQueue, const ActivationBackward<float>&);
template void run(HostQueue, const ActivationBackward<bf16>&);

}  // namespace lockstep
