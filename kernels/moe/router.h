// The router of a mixture of experts: arithmetic.md 2.11. Routing runs in fp32 in both numerics.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"
#include "kernels/core/step_state.h"

namespace lockstep {

enum class RouterScore : std::int32_t { softmax, sigmoid };

inline constexpr std::int64_t kMostExperts = 256;
inline constexpr std::int64_t kMostSlots = 16;  // For one token: top-k.

// The rule by which combine weights follow from the scores of the selected experts.
struct CombineRule {
  bool renormalise = true;  // Divide by their sum.
  float scaling = 1;        // sc
  friend constexpr bool operator==(const CombineRule&, const CombineRule&) = default;
};

// logits = x wr^T; scores p; the k experts with the largest key, ties to the lowest index; their
// combine weights.
template <class T>
struct RouterForward {
  static constexpr const char* kName = "router_forward";
  In<T> x;         // [T, d]
  In<float> wr;    // [E, d], the fp32 master in both numerics.
  In<float> bias;  // [1, E] added to the scores for the selection alone; absent: none.
  In<std::int32_t> row_document;  // [1, T]
  Out<float> logits;              // [T, E]
  Out<float> scores;              // [T, E] p
  Out<float> lse;                 // [1, T] log of the sum of exp(logits).
  Out<std::int32_t> experts;      // [T, k] in the order of selection; -1 in rows of no document.
  Out<float> weights;             // [T, k]
  RouterScore kind = RouterScore::softmax;
  CombineRule combine;
};

// counts[e] = pairs (row, slot) that chose e, before any is dropped. Their sum is k times the rows
// of documents.
struct ExpertCounts {
  static constexpr const char* kName = "expert_counts";
  In<std::int32_t> experts;  // [T, k]
  Out<std::int32_t> counts;  // [1, E]
};

// The load-balancing and z loss of a microbatch. Rows of no document take no part, in the number of
// rows neither.
struct RouterLoss {
  static constexpr const char* kName = "router_loss";
  In<float> scores;               // [T, E]
  In<float> lse;                  // [1, T]
  In<std::int32_t> counts;        // [1, E]
  In<std::int32_t> row_document;  // [1, T]
  In<StepState> state;            // [1, 1]: inverse_microbatches.
  Scratch<float> sums;            // [1, E + 1]
  Out<float> slopes;              // [1, E + 1]: a_0 .. a_{E-1}, then cz.
  Out<float> losses;              // [1, 2]: load balancing, z.
  float aux = 0;                  // Coefficients; 0: off.
  float z = 0;
  std::int32_t top_k = 1;
};

// The gradient of the logits from those of the combine weights and from the losses.
struct RouterBackward {
  static constexpr const char* kName = "router_backward";
  In<float> logits;               // [T, E]
  In<float> scores;               // [T, E]
  In<float> lse;                  // [1, T]
  In<std::int32_t> experts;       // [T, k]
  In<float> dweights;             // [T, k]
  In<float> slopes;               // [1, E + 1]; absent without losses.
  In<std::int32_t> row_document;  // [1, T]
  Out<float> dlogits;             // [T, E]
  RouterScore kind = RouterScore::softmax;
  CombineRule combine;
  bool aux = false;
  bool z = false;
};

// dwr[e, k] = CHAIN32 over physical rows of dlogits[i, e], x[i, k]; rows of no document have
// dlogits +0.
template <class T>
struct RouterWeightGradient {
  static constexpr const char* kName = "router_weight_gradient";
  In<float> dlogits;              // [T, E]
  In<T> x;                        // [T, d]
  In<std::int32_t> row_document;  // [1, T]
  Out<float> dwr;                 // [E, d]
};

template <class T>
void check(const RouterForward<T>& op);
template <class T>
void run(HostQueue, const RouterForward<T>& op);
template <class T>
void run(CudaQueue, const RouterForward<T>& op);
void check(const ExpertCounts& op);
void run(HostQueue, const ExpertCounts& op);
void run(CudaQueue, const ExpertCounts& op);
void check(const RouterLoss& op);
void run(HostQueue, const RouterLoss& op);
void run(CudaQueue, const RouterLoss& op);
void check(const RouterBackward& op);
void run(HostQueue, const RouterBackward& op);
void run(CudaQueue, const RouterBackward& op);
template <class T>
void check(const RouterWeightGradient<T>& op);
template <class T>
void run(HostQueue, const RouterWeightGradient<T>& op);
template <class T>
void run(CudaQueue, const RouterWeightGradient<T>& op);

// The constants of the losses: a_e and cz of arithmetic.md 2.11. `rows` is Tr, the rows that belong
// to documents.
LOCKSTEP_HD float balance_slope(std::int32_t count, std::int64_t rows, std::int64_t experts,
                                std::int32_t top_k, float coefficient, float inverse_microbatches) {
  if (rows == 0) return 0.0f;
  const float tr = static_cast<float>(rows);
  const float pairs = mul(mul(tr, static_cast<float>(top_k)), tr);
  const float scale = div(mul(coefficient, static_cast<float>(experts)), pairs);
  return mul(static_cast<float>(count), mul(inverse_microbatches, scale));
}
LOCKSTEP_HD float z_slope(std::int64_t rows, float coefficient, float inverse_microbatches) {
  return rows == 0 ? 0.0f : mul(inverse_microbatches, div(coefficient, static_cast<float>(rows)));
}

}  // namespace lockstep
