// Cross entropy with masked targets: arithmetic.md 2.12, and the microbatch's loss of section 1.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"
#include "kernels/core/step_state.h"

namespace lockstep {

// loss = log(sum exp(x - max)) + max - x[target]; rows without a target (target < 0) +0 everywhere.
template <class T>
struct CrossEntropyForward {
  static constexpr const char* kName = "cross_entropy_forward";
  In<T> logits;  // [T, V]
  In<std::int32_t>
      targets;         // [1, T]; -1: masked, the last token of a document, or a row of no document.
  Out<float> loss;     // [1, T]
  Out<float> maximum;  // [1, T]
  Out<float> sum;      // [1, T]
};
template <class T>
struct CrossEntropyBackward {
  static constexpr const char* kName = "cross_entropy_backward";
  In<T> logits;
  In<std::int32_t> targets;
  In<float> maximum;
  In<float> sum;
  In<StepState> state;  // [1, 1]: inverse_targets.
  Out<T> dlogits;       // [T, V]
};
// total = mul(CS(loss), invN).
struct MicrobatchLoss {
  static constexpr const char* kName = "microbatch_loss";
  In<float> loss;       // [1, T]
  In<StepState> state;  // [1, 1]
  Out<float> total;     // [1, 1]
};
template <class T>
void check(const CrossEntropyForward<T>& op);
template <class T>
void run(HostQueue, const CrossEntropyForward<T>& op);
template <class T>
void run(CudaQueue, const CrossEntropyForward<T>& op);
template <class T>
void check(const CrossEntropyBackward<T>& op);
template <class T>
void run(HostQueue, const CrossEntropyBackward<T>& op);
template <class T>
void run(CudaQueue, const CrossEntropyBackward<T>& op);
void check(const MicrobatchLoss& op);
void run(HostQueue, const MicrobatchLoss& op);
void run(CudaQueue, const MicrobatchLoss& op);

}  // namespace lockstep
