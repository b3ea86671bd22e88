// Residual connection with hidden dropout: arithmetic.md 2.3.
#pragma once

#include "kernels/core/operand.h"
#include "kernels/core/queue.h"
#include "kernels/ops/dropout.h"

namespace lockstep {

// out = st(add(residual, drop(y))); rows of no document +0.
template <class T>
struct ResidualForward {
  static constexpr const char* kName = "residual_forward";
  In<T> residual;                 // [T, d]
  In<T> y;                        // [T, d] the mixer's stored output.
  In<std::int32_t> row_document;  // [1, T]
  In<std::int32_t> row_position;  // [1, T]
  In<std::int32_t> row_number;    // [1, T]
  In<StepState> state;            // [1, 1]
  Out<T> out;                     // [T, d]
  Dropout dropout;
};
// dy = st(drop'(dout)); rows of no document +0. The residual's own gradient is added in
// RmsNormBackward.
template <class T>
struct ResidualBackward {
  static constexpr const char* kName = "residual_backward";
  In<T> dout;  // [T, d]
  In<std::int32_t> row_document;
  In<std::int32_t> row_position;
  In<std::int32_t> row_number;
  In<StepState> state;
  Out<T> dy;  // [T, d]
  Dropout dropout;
  // [1, 1] or absent: rises to the words of dy in rows in use (fp8.h). bf16 alone.
  Accum<std::uint32_t> amax = {};
};
template <class T>
void check(const ResidualForward<T>& op);
template <class T>
void run(HostQueue, const ResidualForward<T>& op);
template <class T>
void run(CudaQueue, const ResidualForward<T>& op);
template <class T>
void check(const ResidualBackward<T>& op);
template <class T>
void run(HostQueue, const ResidualBackward<T>& op);
template <class T>
void run(CudaQueue, const ResidualBackward<T>& op);

}  // namespace lockstep
