// Tokens to the rows of the expert buffer and back: arithmetic.md 2.11. A pair is (row, slot); its
// place in [T, k], row-major, is its priority.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

// Assigns pairs to rows of the buffer. Expert e owns the rows start[e] .. start[e] + rows[e] - 1,
// in order of priority; the other rows are padding. A pair whose rank in its expert reaches the
// capacity is dropped.
struct ExpertLayout {
  static constexpr const char* kName = "expert_layout";
  In<std::int32_t> experts;    // [T, k]; -1 in rows of no document.
  In<std::int32_t> counts;     // [1, E] pairs that chose each expert.
  Out<std::int32_t> start;     // [1, E]
  Out<std::int32_t> rows;      // [1, E]
  Out<std::int32_t> pair_row;  // [T, k] the pair's buffer row; -1: dropped, or of no document.
  Out<std::int32_t> row_pair;  // [1, R] the buffer row's pair; -1: padding.
  std::int32_t capacity = 0;   // 0: dropless.
  bool padded = false;         // start[e] = e * capacity; otherwise experts follow one another.
};

// buffer[r] = x[row of the pair]; padding rows +0.
template <class T>
struct Dispatch {
  static constexpr const char* kName = "dispatch";
  In<T> x;                    // [T, d]
  In<std::int32_t> row_pair;  // [1, R]
  Out<T> buffer;              // [R, d]
  std::int32_t top_k = 1;
  // [1, S] or absent: rises to the words of the buffer in rows in use (fp8.h). bf16 alone.
  Accum<std::uint32_t> amax = {};
  // [1, S] or absent, with amax alone: where the segments of the rows lie (fp8.h).
  In<std::int32_t> start = {}, rows = {};
};

// out = st(sum over slots asc of weight * y, then + shared).
template <class T>
struct Combine {
  static constexpr const char* kName = "combine";
  In<T> y;                        // [R, d] stored outputs of the experts.
  In<float> weights;              // [T, k]
  In<std::int32_t> pair_row;      // [T, k]
  In<T> shared;                   // [T, d] output of the shared expert, or absent.
  In<std::int32_t> row_document;  // [1, T]
  Out<T> out;                     // [T, d]
};

// dy = st(weight * dout) for each buffer row; dweights = R128 over d of dout, y. The shared
// expert's gradient is dout.
template <class T>
struct CombineBackward {
  static constexpr const char* kName = "combine_backward";
  In<T> dout;                     // [T, d]
  In<T> y;                        // [R, d]
  In<float> weights;              // [T, k]
  In<std::int32_t> pair_row;      // [T, k]
  In<std::int32_t> row_pair;      // [1, R]
  In<std::int32_t> row_document;  // [1, T]
  Out<T> dy;                      // [R, d]
  Out<float> dweights;            // [T, k]; dropped pairs +0.
  // [1, S] or absent: rises to the words of dy in rows in use (fp8.h). bf16 alone.
  Accum<std::uint32_t> amax = {};
  // [1, S] or absent, with amax alone: where the segments of the rows lie (fp8.h).
  In<std::int32_t> start = {}, rows = {};
};

// dx = st(sum over slots asc of dbuffer, then + dshared, then + the router's part).
template <class T>
struct DispatchBackward {
  static constexpr const char* kName = "dispatch_backward";
  In<T> dbuffer;                  // [R, d]
  In<std::int32_t> pair_row;      // [T, k]
  In<T> dshared;                  // [T, d] gradient of the shared expert's input, or absent.
  In<float> dlogits;              // [T, E]
  In<float> wr;                   // [E, d]
  In<std::int32_t> row_document;  // [1, T]
  Out<T> dx;                      // [T, d]
};

void check(const ExpertLayout& op);
void run(HostQueue, const ExpertLayout& op);
void run(CudaQueue, const ExpertLayout& op);
template <class T>
void check(const Dispatch<T>& op);
template <class T>
void run(HostQueue, const Dispatch<T>& op);
template <class T>
void run(CudaQueue, const Dispatch<T>& op);
template <class T>
void check(const Combine<T>& op);
template <class T>
void run(HostQueue, const Combine<T>& op);
template <class T>
void run(CudaQueue, const Combine<T>& op);
template <class T>
void check(const CombineBackward<T>& op);
template <class T>
void run(HostQueue, const CombineBackward<T>& op);
template <class T>
void run(CudaQueue, const CombineBackward<T>& op);
template <class T>
void check(const DispatchBackward<T>& op);
template <class T>
void run(HostQueue, const DispatchBackward<T>& op);
template <class T>
void run(CudaQueue, const DispatchBackward<T>& op);

}  // namespace lockstep
