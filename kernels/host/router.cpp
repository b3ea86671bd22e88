#include "kernels/moe/router.h"

#include <vector>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/core/reduce.h"
#include "kernels/host/chain.h"
#include "kernels/host/rows.h"

namespace lockstep {
namespace {

// Computes smx_e = pe_e / s of one row and returns lse = m + log(s).
float softmax_row(std::int64_t experts, const float* logits, float* smx) {
  const float m = maximum(experts, [logits](std::int64_t e) { return logits[e]; });
  for (std::int64_t e = 0; e < experts; ++e) smx[e] = expn(sub(logits[e], m));
  const float s = r128(experts, [smx](std::int64_t e, float acc) { return add(acc, smx[e]); });
  const float inv = div(1.0f, s);
  for (std::int64_t e = 0; e < experts; ++e) smx[e] = mul(smx[e], inv);
  return add(m, log(s));
}

// k times the unused expert with the largest key; ties go to the lowest index.
void select(std::int64_t experts, std::int64_t slots, const float* key, std::int32_t* selected) {
  const bool last_of_ties = faulty("router-ties-go-to-the-highest-index", false, true);
  bool used[kMostExperts] = {};
  for (std::int64_t s = 0; s < slots; ++s) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < experts; ++e) {
      if (used[e]) continue;
      if (best < 0 || key[e] > key[best] || (last_of_ties && key[e] == key[best])) best = e;
    }
    used[best] = true;
    selected[s] = static_cast<std::int32_t>(best);
  }
}

// 1 / the sum of the selected scores, a chain in the order of selection.
float inverse_sum(std::int64_t slots, const float* scores, const std::int32_t* selected) {
  float sum = 0.0f;
  for (std::int64_t s = 0; s < slots; ++s) sum = add(sum, scores[selected[s]]);
  return div(1.0f, add(sum, 0.0f));
}

void combine_weights(const CombineRule& rule, std::int64_t slots, const float* scores,
                     const std::int32_t* selected, float* weights) {
  const float inv = rule.renormalise ? inverse_sum(slots, scores, selected) : 1.0f;
  for (std::int64_t s = 0; s < slots; ++s) {
    const float p = scores[selected[s]];
    weights[s] = mul(rule.renormalise ? mul(p, inv) : p, rule.scaling);
  }
}

}  // namespace

template <class T>
void run(HostQueue, const RouterForward<T>& op) {
  const std::int64_t d = op.x.cols, experts = op.wr.rows, slots = op.experts.cols;
  const bool weights_take_the_bias = faulty("router-bias-enters-the-weights", false, true);
  std::vector<float> wr(d * experts), x(d);
  transpose(experts, d, op.wr.data, op.wr.pitch, wr.data(), experts);
  float key[kMostExperts];
  for (std::int64_t i = 0; i < op.x.rows; ++i) {
    float* logits = op.logits.row(i);
    float* scores = op.scores.row(i);
    std::int32_t* selected = op.experts.row(i);
    if (op.row_document.data[i] < 0) {
      store_zero(experts, logits);
      store_zero(experts, scores);
      store_zero(slots, op.weights.row(i));
      op.lse.data[i] = 0.0f;
      for (std::int64_t s = 0; s < slots; ++s) selected[s] = -1;
      continue;
    }
    load_row(d, op.x.row(i), x.data());
    dot_row(experts, d, x.data(), 1, wr.data(), experts, logits);
    op.lse.data[i] = softmax_row(experts, logits, scores);
    for (std::int64_t e = 0; e < experts; ++e) {
      if (op.kind == RouterScore::sigmoid) scores[e] = sigmoid(logits[e]);
      key[e] = op.bias ? add(scores[e], op.bias.data[e]) : scores[e];
    }
    select(experts, slots, key, selected);
    combine_weights(op.combine, slots, weights_take_the_bias ? key : scores, selected,
                    op.weights.row(i));
  }
}

void run(HostQueue, const ExpertCounts& op) {
  for (std::int64_t e = 0; e < op.counts.cols; ++e) op.counts.data[e] = 0;
  const std::int64_t slots = op.experts.cols - faulty("expert-counts-forget-the-last-slot", 0, 1);
  for (std::int64_t i = 0; i < op.experts.rows; ++i) {
    for (std::int64_t s = 0; s < slots; ++s) {
      if (op.experts.row(i)[s] >= 0) ++op.counts.data[op.experts.row(i)[s]];
    }
  }
}

void run(HostQueue, const RouterLoss& op) {
  const std::int64_t rows = op.scores.rows, experts = op.scores.cols;
  const float inverse_microbatches =
      faulty("router-loss-ignores-microbatches", op.state.data[0].inverse_microbatches, 1.0f);
  column_sums(rows, experts + 1, op.sums.data, [&](std::int64_t i, float* p) {
    if (op.row_document.data[i] < 0) return;
    for (std::int64_t e = 0; e < experts; ++e) p[e] = add(p[e], op.scores.row(i)[e]);
    p[experts] = fma(op.lse.data[i], op.lse.data[i], p[experts]);
  });
  std::int64_t pairs = 0;
  for (std::int64_t e = 0; e < experts; ++e) pairs += op.counts.data[e];
  const std::int64_t tr = faulty("router-loss-counts-padding-rows", pairs / op.top_k, rows);
  float value = 0.0f;
  for (std::int64_t e = 0; e < experts; ++e) {
    const float a =
        balance_slope(op.counts.data[e], tr, experts, op.top_k, op.aux, inverse_microbatches);
    op.slopes.data[e] = a;
    value = fma(a, op.sums.data[e], value);
  }
  const float cz = z_slope(tr, op.z, inverse_microbatches);
  op.slopes.data[experts] = cz;
  // A loss that is off is +0 even where the sum that it would scale is infinite.
  op.losses.data[0] = op.aux == 0.0f ? 0.0f : add(value, 0.0f);
  op.losses.data[1] = op.z == 0.0f ? 0.0f : mul(cz, op.sums.data[experts]);
}

namespace {

// dp_s of the selected experts.
void score_gradients(const RouterBackward& op, std::int64_t i, float* dp) {
  const std::int64_t slots = op.experts.cols;
  const float* scores = op.scores.row(i);
  const float* dweights = op.dweights.row(i);
  const std::int32_t* selected = op.experts.row(i);
  const float sc = op.combine.scaling;
  const bool renormalises =
      faulty("router-backward-forgets-to-renormalise", op.combine.renormalise, false);
  if (!renormalises) {
    for (std::int64_t s = 0; s < slots; ++s) dp[selected[s]] = mul(sc, dweights[s]);
    return;
  }
  const float inv = inverse_sum(slots, scores, selected);
  float t = 0.0f;
  for (std::int64_t s = 0; s < slots; ++s) t = fma(dweights[s], mul(scores[selected[s]], inv), t);
  t = add(t, 0.0f);
  for (std::int64_t s = 0; s < slots; ++s) dp[selected[s]] = mul(mul(sc, inv), sub(dweights[s], t));
}

}  // namespace

void run(HostQueue, const RouterBackward& op) {
  const std::int64_t experts = op.logits.cols;
  const bool reaches_all = faulty("router-balance-reaches-selected-experts-only", true, false);
  float dp[kMostExperts], smx[kMostExperts];
  for (std::int64_t i = 0; i < op.logits.rows; ++i) {
    float* dlogits = op.dlogits.row(i);
    if (op.row_document.data[i] < 0) {
      store_zero(experts, dlogits);
      continue;
    }
    const float* p = op.scores.row(i);
    set_zero(experts, dp);
    score_gradients(op, i, dp);
    for (std::int64_t e = 0; op.aux && e < experts; ++e) {
      dp[e] = reaches_all || dp[e] != 0.0f ? add(dp[e], op.slopes.data[e]) : dp[e];
    }
    if (op.kind == RouterScore::softmax) {
      const float t =
          r128(experts, [&](std::int64_t e, float acc) { return fma(dp[e], p[e], acc); });
      for (std::int64_t e = 0; e < experts; ++e) dlogits[e] = mul(p[e], sub(dp[e], t));
    } else {
      for (std::int64_t e = 0; e < experts; ++e)
        dlogits[e] = mul(dp[e], mul(p[e], sub(1.0f, p[e])));
    }
    if (!op.z) continue;
    softmax_row(experts, op.logits.row(i), smx);
    const float lse = faulty("router-z-loss-forgets-its-lse", op.lse.data[i], 1.0f);
    const float slope = mul(mul(2.0f, op.slopes.data[experts]), lse);
    for (std::int64_t e = 0; e < experts; ++e) dlogits[e] = fma(slope, smx[e], dlogits[e]);
  }
}

template <class T>
void run(HostQueue, const RouterWeightGradient<T>& op) {
  const std::int64_t d = op.x.cols;
  std::vector<float> x(d);
  for (std::int64_t e = 0; e < op.dwr.rows; ++e) set_zero(d, op.dwr.row(e));
  for (std::int64_t i = 0; i < op.x.rows; ++i) {
    if (op.row_document.data[i] < 0) continue;
    load_row(d, op.x.row(i), x.data());
    for (std::int64_t e = 0; e < op.dwr.rows; ++e) {
      const float dl = op.dlogits.row(i)[e];
      float* to = op.dwr.row(e);
      for (std::int64_t c = 0; c < d; ++c) to[c] = fma(dl, at(x, c), to[c]);
    }
  }
  for (std::int64_t e = 0; e < op.dwr.rows; ++e) add_zero(d, op.dwr.row(e));
}

template void run(HostQueue, const RouterForward<float>&);
template void run(HostQueue, const RouterForward<bf16>&);
template void run(HostQueue, const RouterWeightGradient<float>&);
template void run(HostQueue, const RouterWeightGradient<bf16>&);

}  // namespace lockstep
