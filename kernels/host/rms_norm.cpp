#include "kernels/ops/rms_norm.h"

#include <algorithm>
#include <vector>

#include "kernels/core/fault.h"
#include "kernels/core/reduce.h"
#include "kernels/host/raise_amax.h"
#include "kernels/host/rows.h"

namespace lockstep {
namespace {

// For a planted fault: the amax of what the elements were before they were stored.
template <class T>
std::uint32_t without_store(std::uint32_t amax, const RmsNormForward<T>& op) {
  amax &= 0xff800000u;
  for (std::int64_t i = 0; i < op.x.rows; ++i) {
    if (op.row_document.data[i] < 0) continue;
    for (std::int64_t e = 0; e < op.x.cols; ++e) {
      const float y = mul(mul(load(op.x.row(i)[e]), op.rstd.data[i]), op.gain.data[e]);
      amax = std::max(amax, bits(y) & 0x7fffffffu);
    }
  }
  return amax;
}
template <class T>
std::uint32_t as_stored(std::uint32_t amax, const RmsNormForward<T>&) {
  return amax;
}

template <class T>
void take_amax(const RmsNormForward<T>& op) {
  raise_amax(op, op.y);
  if (!op.amax) return;
  const auto seen = faulty("fp8-amax-before-the-store", &as_stored<T>, &without_store<T>);
  op.amax.data[0] = seen(op.amax.data[0], op);
}

}  // namespace

template <class T>
void run(HostQueue, const RmsNormForward<T>& op) {
  const std::int64_t d = op.x.cols;
  const float* gain = op.gain.data;
  const float eps = faulty("rms-norm-forgets-eps", op.eps, 0.0f);
  for (std::int64_t i = 0; i < op.x.rows; ++i) {
    T* y = op.y.row(i);
    const std::int32_t document = faulty("rms-norm-keeps-padding-rows", op.row_document.data[i], 0);
    if (document < 0) {
      store_zero(d, y);
      op.rstd.data[i] = 0.0f;
      continue;
    }
    const T* x = op.x.row(i);
    const float ss =
        r128(d, [x](std::int64_t e, float acc) { return fma(load(x[e]), load(x[e]), acc); });
    const float rstd = rsqrt(add(div(ss, static_cast<float>(d)), eps));
    for (std::int64_t e = 0; e < d; ++e) y[e] = st<T>(mul(mul(load(x[e]), rstd), gain[e]));
    op.rstd.data[i] = rstd;
  }
  take_amax(op);
}

// Rows that are added up first.
static std::int64_t block_of(std::int64_t rows) {
  return faulty<std::int64_t>("column-sum-ignores-blocks", 32, rows);
}

template <class T>
void run(HostQueue, const RmsNormBackward<T>& op) {
  const std::int64_t d = op.x.cols;
  const float* gain = op.gain.data;
  const In<T> dresidual = faulty("rms-norm-backward-drops-residual", op.dresidual, {});
  std::vector<float> scratch(2 * d);
  float* u = scratch.data();
  float* v = u + d;
  const auto row = [&](std::int64_t i, float* p) {
    T* dx = op.dx.row(i);
    if (op.row_document.data[i] < 0) return store_zero(d, dx);
    const T* x = op.x.row(i);
    const T* dy = op.dy.row(i);
    const float rstd = op.rstd.data[i];
    for (std::int64_t e = 0; e < d; ++e) u[e] = mul(load(x[e]), rstd);
    for (std::int64_t e = 0; e < d; ++e) v[e] = mul(load(dy[e]), gain[e]);
    const float sum = r128(d, [u, v](std::int64_t e, float acc) { return fma(v[e], u[e], acc); });
    const float nc =
        faulty("rms-norm-backward-drops-mean-term", neg(div(sum, static_cast<float>(d))), 0.0f);
    if (dresidual) {
      const T* dr = dresidual.row(i);
      for (std::int64_t e = 0; e < d; ++e)
        dx[e] = st<T>(add(load(dr[e]), mul(rstd, fma(nc, u[e], v[e]))));
    } else {
      for (std::int64_t e = 0; e < d; ++e) dx[e] = st<T>(mul(rstd, fma(nc, u[e], v[e])));
    }
    for (std::int64_t e = 0; e < d; ++e) p[e] = fma(load(dy[e]), u[e], p[e]);
  };
  column_sums(op.x.rows, d, op.dgain.data, row, block_of(op.x.rows));
  add_to_total(op.dgain, op.total);
  raise_amax(op, op.dx);
}

template void run(HostQueue, const RmsNormForward<float>&);
template void run(HostQueue, const RmsNormForward<bf16>&);
template void run(HostQueue, const RmsNormBackward<float>&);
template void run(HostQueue, const RmsNormBackward<bf16>&);

}  // namespace lockstep
