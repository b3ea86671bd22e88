// MLP activations on the stored product of W1: arithmetic.md 2.10.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

enum class Activation : std::int32_t { squared_relu, swiglu };

template <class T>
struct ActivationForward {
  static constexpr const char* kName = "activation_forward";
  In<T> h;                        // [T, F], or [T, 2F] for SwiGLU: gates then ups.
  In<std::int32_t> row_document;  // [1, T]
  Out<T> a;                       // [T, F]
  Activation kind = Activation::squared_relu;
  // [1, S] or absent: rises to the words of what is stored in rows in use (fp8.h). bf16 alone.
  Accum<std::uint32_t> amax = {};
  // [1, S] or absent, with amax alone: where the segments of the rows lie (fp8.h).
  In<std::int32_t> start = {}, rows = {};
};
template <class T>
struct ActivationBackward {
  static constexpr const char* kName = "activation_backward";
  In<T> h;
  In<T> da;  // [T, F]
  In<std::int32_t> row_document;
  Out<T> dh;  // As h.
  Activation kind = Activation::squared_relu;
  // [1, S] or absent: rises to the words of what is stored in rows in use (fp8.h). bf16 alone.
  Accum<std::uint32_t> amax = {};
  // [1, S] or absent, with amax alone: where the segments of the rows lie (fp8.h).
  In<std::int32_t> start = {}, rows = {};
};
template <class T>
void check(const ActivationForward<T>& op);
template <class T>
void run(HostQueue, const ActivationForward<T>& op);
template <class T>
void run(CudaQueue, const ActivationForward<T>& op);
template <class T>
void check(const ActivationBackward<T>& op);
template <class T>
void run(HostQueue, const ActivationBackward<T>& op);
template <class T>
void run(CudaQueue, const ActivationBackward<T>& op);

}  // namespace lockstep
