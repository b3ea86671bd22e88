// Global norm, clipping and AdamW: arithmetic.md 1 and 2.13. All fp32.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"
#include "kernels/core/step_state.h"

namespace lockstep {

// sums[r] = R128(fma(g, g)) over row r; a 1-D parameter is given as [n, 1].
struct GradientRowSums {
  static constexpr const char* kName = "gradient_row_sums";
  In<float> g;      // [rows, cols]
  Out<float> sums;  // [1, rows]
};
// to[e] = from[order[e]]: what the ranks sent, in the sequence of the norm.
struct OrderRowSums {
  static constexpr const char* kName = "order_row_sums";
  In<float> from;          // [1, n]
  In<std::int32_t> order;  // [1, rows], each from 0 to n - 1.
  Out<float> to;           // [1, rows]
};
// norm = sqrt(R1024(add) over all row sums); clip = max_norm > 0 and norm > max_norm ?
// div(max_norm, norm) : 1.
struct GradientNorm {
  static constexpr const char* kName = "gradient_norm";
  In<float> sums;   // [1, rows of all parameters in index order]
  Out<float> norm;  // [1, 2]: norm, clip.
  float max_norm = 0;
};
struct AdamW {
  static constexpr const char* kName = "adamw";
  In<float> g;          // [rows, cols]: the accumulated gradient, before clipping.
  In<float> norm;       // [1, 2]: norm, clip.
  In<StepState> state;  // [1, 1]: learning_rate, bias_correction1, bias_correction2.
  Accum<float> w;       // [rows, cols]
  Accum<float> m;
  Accum<float> v;
  Out<bf16> copy = {};           // [rows, cols] RNE of the new w, for bf16 products; or absent.
  float beta1 = 0.9f;            // (float)beta
  float one_minus_beta1 = 0.1f;  // (float)(1.0 - beta) in double
  float beta2 = 0.95f;
  float one_minus_beta2 = 0.05f;
  float eps = 1e-8f;
  float weight_decay = 0;  // +0 for 1-D parameters.
};
// copy = RNE of w: the bf16 copy of the initial weights, and of those read from a checkpoint.
struct RoundWeights {
  static constexpr const char* kName = "round_weights";
  In<float> w;     // [rows, cols]
  Out<bf16> copy;  // [rows, cols]
};
void check(const GradientRowSums& op);
void run(HostQueue, const GradientRowSums& op);
void run(CudaQueue, const GradientRowSums& op);
void check(const OrderRowSums& op);
void run(HostQueue, const OrderRowSums& op);
void run(CudaQueue, const OrderRowSums& op);
void check(const GradientNorm& op);
void run(HostQueue, const GradientNorm& op);
void run(CudaQueue, const GradientNorm& op);
void check(const RoundWeights& op);
void run(HostQueue, const RoundWeights& op);
void run(CudaQueue, const RoundWeights& op);
void check(const AdamW& op);
void run(HostQueue, const AdamW& op);
void run(CudaQueue, const AdamW& op);

}  // namespace lockstep
