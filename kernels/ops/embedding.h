// Embedding with dropout site 1: arithmetic.md 2.1.
#pragma once

#include "kernels/core/operand.h"
#include "kernels/core/queue.h"
#include "kernels/ops/dropout.h"

namespace lockstep {

// y[i, :] = st(drop(weight[tokens[i], :])); rows of no document +0.
template <class T>
struct EmbeddingForward {
  static constexpr const char* kName = "embedding_forward";
  In<std::int32_t> tokens;  // [1, T]; entries of rows of no document are never read as an index.
  In<T> weight;             // [V, d]; fp32 master, or its bf16 copy.
  In<std::int32_t> row_document;  // [1, T]
  In<std::int32_t> row_position;  // [1, T]
  In<std::int32_t> row_number;    // [1, T]
  In<StepState> state;            // [1, 1]
  Out<T> y;                       // [T, d]
  Dropout dropout;
};
// dweight[v, k] = sum over rows asc with tokens[i] == v of drop'(dy[i, k]), from +0: the
// microbatch's gradient. Either it is written to dweight, every row of it, or there is no dweight
// and the accumulator takes it: acc = add(acc, sum), the one add of arithmetic.md 1. Rows of tokens
// that the pack lacks are left alone then: their sum is +0, and an accumulator, which begins with
// +0, never holds -0.
template <class T>
struct EmbeddingBackward {
  static constexpr const char* kName = "embedding_backward";
  In<std::int32_t> tokens;
  In<T> dy;  // [T, d]
  In<std::int32_t> row_document;
  In<std::int32_t> row_position;
  In<std::int32_t> row_number;
  In<StepState> state;
  Out<float> dweight = {};  // [V, d] or absent.
  Accum<float> acc = {};    // [V, d] or absent.
  Dropout dropout;
};
template <class T>
void check(const EmbeddingForward<T>& op);
template <class T>
void run(HostQueue, const EmbeddingForward<T>& op);
template <class T>
void run(CudaQueue, const EmbeddingForward<T>& op);
template <class T>
void check(const EmbeddingBackward<T>& op);
template <class T>
void run(HostQueue, const EmbeddingBackward<T>& op);
template <class T>
void run(CudaQueue, const EmbeddingBackward<T>& op);

}  // namespace lockstep
