#include "kernels/ops/gated_norm.h"

#include "kernels/core/fault.h"
#include "kernels/core/reduce.h"
#include "kernels/host/raise_amax.h"
#include "kernels/host/rows.h"

namespace lockstep {

template <class T>
void run(HostQueue, const GatedNormForward<T>& op) {
  const std::int64_t d = op.y.cols, width = d / op.groups;
  const std::int64_t averaged = faulty("gated-norm-mean-over-all-groups", width, d);
  const bool gates_last = faulty("gated-norm-gates-after-norm", false, true);
  std::vector<float> scratch(2 * d);
  float* u = scratch.data();
  float* gate = u + d;
  for (std::int64_t i = 0; i < op.y.rows; ++i) {
    T* o = op.o.row(i);
    if (op.row_document.data[i] < 0) {
      store_zero(d, o);
      store_zero(op.groups, op.rstd.row(i));
      continue;
    }
    const T* y = op.y.row(i);
    const T* z = op.z.row(i);
    for (std::int64_t e = 0; e < d; ++e) gate[e] = silu(load(z[e]));
    for (std::int64_t e = 0; e < d; ++e) u[e] = gates_last ? load(y[e]) : mul(load(y[e]), gate[e]);
    for (std::int64_t g = 0; g < op.groups; ++g) {
      const float* ug = u + g * width;
      const float ss =
          r128(width, [ug](std::int64_t e, float acc) { return fma(ug[e], ug[e], acc); });
      const float rstd = rsqrt(add(div(ss, static_cast<float>(averaged)), op.eps));
      op.rstd.row(i)[g] = rstd;
      for (std::int64_t e = g * width; e < (g + 1) * width; ++e) {
        const T scaled = st<T>(mul(mul(u[e], rstd), op.gain.data[e]));
        o[e] = gates_last ? st<T>(mul(load(scaled), gate[e])) : scaled;
      }
    }
  }
  raise_amax(op, op.o);
}

template <class T>
void run(HostQueue, const GatedNormBackward<T>& op) {
  const std::int64_t d = op.y.cols, width = d / op.groups;
  const bool forgets_gate = faulty("gated-norm-backward-forgets-gate-slope", false, true);
  std::vector<float> scratch(4 * d);
  float* u = scratch.data();  // u * rstd
  float* v = u + d;
  float* gate = v + d;
  float* slope = gate + d;
  const auto row = [&](std::int64_t i, float* p) {
    T* dy = op.dy.row(i);
    T* dz = op.dz.row(i);
    if (op.row_document.data[i] < 0) {
      store_zero(d, dy);
      store_zero(d, dz);
      return;
    }
    const T* y = op.y.row(i);
    const T* z = op.z.row(i);
    const T* dout = op.dout.row(i);
    for (std::int64_t e = 0; e < d; ++e) gate[e] = silu(load(z[e]));
    for (std::int64_t e = 0; e < d; ++e) slope[e] = forgets_gate ? gate[e] : dsilu(load(z[e]));
    for (std::int64_t g = 0; g < op.groups; ++g) {
      const std::int64_t first = g * width;
      const float rstd = op.rstd.row(i)[g];
      for (std::int64_t e = first; e < first + width; ++e)
        u[e] = mul(mul(load(y[e]), gate[e]), rstd);
      for (std::int64_t e = first; e < first + width; ++e)
        v[e] = mul(load(dout[e]), op.gain.data[e]);
      const float sum = r128(width, [ug = u + first, vg = v + first](std::int64_t e, float acc) {
        return fma(vg[e], ug[e], acc);
      });
      const float nc = neg(div(sum, static_cast<float>(width)));
      for (std::int64_t e = first; e < first + width; ++e) {
        const float du = mul(rstd, fma(nc, u[e], v[e]));
        dy[e] = st<T>(mul(du, gate[e]));
        dz[e] = st<T>(mul(mul(du, load(y[e])), slope[e]));
      }
    }
    for (std::int64_t e = 0; e < d; ++e) p[e] = fma(load(dout[e]), u[e], p[e]);
  };
  column_sums(op.y.rows, d, op.dgain.data, row);
  add_to_total(op.dgain, op.total);
  raise_amax(op, op.dz);
}

template void run(HostQueue, const GatedNormForward<float>&);
template void run(HostQueue, const GatedNormForward<bf16>&);
template void run(HostQueue, const GatedNormBackward<float>&);
template void run(HostQueue, const GatedNormBackward<bf16>&);

}  // namespace lockstep
