#include "kernels/ops/optimizer.h"

#include "kernels/core/fault.h"
#include "kernels/core/reduce.h"
#include "kernels/host/rows.h"

namespace lockstep {

void run(HostQueue, const GradientRowSums& op) {
  const std::int64_t cols = op.g.cols - faulty("gradient-row-sums-drop-last-column", 0, 1);
  for (std::int64_t i = 0; i < op.g.rows; ++i) {
    const float* g = op.g.row(i);
    op.sums.data[i] = r128(cols, [g](std::int64_t e, float acc) { return fma(g[e], g[e], acc); });
  }
}

void run(HostQueue, const OrderRowSums& op) {
  for (std::int64_t e = 0; e < op.order.cols; ++e) op.to.data[e] = op.from.data[op.order.data[e]];
}

void run(HostQueue, const GradientNorm& op) {
  const float* sums = op.sums.data;
  const float ss =
      r1024(op.sums.cols, [sums](std::int64_t e, float acc) { return add(acc, sums[e]); });
  const float norm = faulty("gradient-norm-forgets-root", sqrt(ss), ss);
  op.norm.data[0] = norm;
  op.norm.data[1] = op.max_norm > 0.0f && norm > op.max_norm ? div(op.max_norm, norm) : 1.0f;
}

static float clip_of(const AdamW& op) {
  return faulty("adamw-forgets-clip", op.norm.data[1], 1.0f);
}

void run(HostQueue, const AdamW& op) {
  const float clip = clip_of(op);
  const float negative_rate = neg(op.state.data->learning_rate);
  const bool corrects = faulty("adamw-forgets-bias-correction", true, false);
  const float ib1 = corrects ? op.state.data->bias_correction1 : 1.0f;
  const float ib2 = corrects ? op.state.data->bias_correction2 : 1.0f;
  const float decay = faulty("adamw-forgets-decay", op.weight_decay, 0.0f);
  const float b1 = op.beta1, o1 = op.one_minus_beta1, b2 = op.beta2, o2 = op.one_minus_beta2,
              eps = op.eps;
  for (std::int64_t i = 0; i < op.w.rows; ++i) {
    const float* __restrict gradient = op.g.row(i);
    float* __restrict w = op.w.row(i);
    float* __restrict m = op.m.row(i);
    float* __restrict v = op.v.row(i);
    for (std::int64_t e = 0; e < op.w.cols; ++e) {
      const float g = mul(gradient[e], clip);
      m[e] = fma(b1, m[e], mul(o1, g));
      v[e] = fma(b2, v[e], mul(o2, mul(g, g)));
      const float u = div(mul(m[e], ib1), add(sqrt(mul(v[e], ib2)), eps));
      w[e] = fma(negative_rate, fma(decay, w[e], u), w[e]);
    }
    if (op.copy) store_row(op.w.cols, w, op.copy.row(i));
  }
}

void run(HostQueue, const RoundWeights& op) {
  for (std::int64_t i = 0; i < op.w.rows; ++i) store_row(op.w.cols, op.w.row(i), op.copy.row(i));
}

}  // namespace lockstep
