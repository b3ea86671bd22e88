// fp8: arithmetic.md 5. Amax words, exponents, codes, and the products of linear layers.
//
// Rows in use: `row_document` [1, R] is negative for a row that is not in use (of the expert
// buffer: `row_pair` of ExpertLayout); without it all rows are in use, as those of a weight.
//
// Segments: `start` and `rows` [1, S] say which rows of the buffer are whose, as in
// kernels/moe/dispatch.h, in ascending order; a row in use lies in one segment. Without them a
// matrix is one segment, a stacked weight [E * out, in] is E equal ones. Of such a weight an op may
// be given a part: the rows from `first_row` on, of segments of `segment_rows` each. Several
// segments may use one expert's weight: those of expert e are the eth S / E of them.
//
// Codes lie in rows of a multiple of 16 codes, 16 bytes aligned, with code 00 behind what they
// hold. The products take both factors along their sum: transposed codes are an operand of their
// own.
#pragma once

#include <cstdint>

#include "kernels/core/contract.h"
#include "kernels/core/fp8.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"
#include "kernels/core/step_state.h"

namespace lockstep {

// amax = 0. Whoever takes a new maximum clears its words first.
struct Fp8ClearAmax {
  static constexpr const char* kName = "fp8_clear_amax";
  Out<std::uint32_t> amax;  // [1, S]
};
// amax[s] = max of amax[s] and the words of all elements of the rows in use of segment s.
struct Fp8Amax {
  static constexpr const char* kName = "fp8_amax";
  In<bf16> x;                                    // [R, cols]
  In<std::int32_t> row_document = {};            // [1, R] or absent.
  In<std::int32_t> start = {};                   // [1, S] or absent.
  In<std::int32_t> rows = {};                    // [1, S] or absent.
  Accum<std::uint32_t> amax;                     // [1, S]
  std::int64_t first_row = 0, segment_rows = 0;  // 0: all rows of x, in S equal parts.
};

// The exponents of an operand's segments. Recipe current, and step 0 of delayed: k = k(amax).
// Otherwise k is that of the operand (of its expert), `held`. Training under delayed: pending takes
// the maximum of the words, by expert.
template <class F>
struct Fp8Exponent {
  static constexpr const char* kName = "fp8_exponent";
  In<std::uint32_t> amax = {};        // [1, S]; absent in an evaluation that uses `held`.
  In<std::int32_t> held = {};         // [1, E] or absent.
  Accum<std::uint32_t> pending = {};  // [1, E] or absent.
  Out<std::int32_t> k;                // [1, S]
  Out<float> scale;                   // [1, S] 2^-k
};
// The roll of recipe delayed, for n operands of one type, once a step; t = state.step. What it
// rolls is the maximum over `of_ranks`, if there are any; otherwise what is pending here.
template <class F>
struct Fp8Roll {
  static constexpr const char* kName = "fp8_roll";
  In<StepState> state;              // [1, 1]
  Accum<std::uint32_t> pending;     // [1, n] 0 afterwards.
  In<std::uint32_t> of_ranks = {};  // [ranks, n] pending of every rank, or absent.
  Accum<std::uint32_t> history;     // [n, H]
  Accum<std::int32_t> k;            // [1, n]
  std::int32_t margin = 0;          // 0..8
  bool most_recent = false;         // Else the maximum of the history.
};

// codes[r, c] = q(x[r, c], k of the row's segment); rows not in use and columns behind the last 00.
template <class F>
struct Fp8Cast {
  static constexpr const char* kName = "fp8_cast";
  In<bf16> x;                          // [R, cols]
  In<std::int32_t> row_document = {};  // [1, R] or absent.
  In<std::int32_t> start = {};         // [1, S] or absent.
  In<std::int32_t> rows = {};          // [1, S] or absent.
  In<std::int32_t> k;                  // [1, S]
  Out<F> codes = {};                   // [R, cols up to 16] or absent.
  // Absent, or one segment: [cols, R up to 16]. S equal segments: [S * cols, R / S up to 16], one
  // below the other. Listed segments: [cols, R up to 16 + 16 (S - 1)], one behind the other, each
  // its rows up to 16. Code 00 everywhere else.
  Out<F> transposed = {};
  std::int64_t first_row = 0, segment_rows = 0;  // As in Fp8Amax; not with `transposed`.
};

// transposed[c, r] = codes[r, c] for each of E matrices, one below the other; columns behind the
// last 00.
struct Fp8Transpose {
  static constexpr const char* kName = "fp8_transpose";
  In<e4m3> codes;                                 // [E * R, cols up to 16]
  Out<e4m3> transposed;                           // [E * cols, R up to 16]
  std::int64_t rows = 0, cols = 0, matrices = 1;  // R, cols, E
};
// The words of all ranks' amaxes of n operands: amax = the maximum over the ranks.
struct Fp8AmaxOfRanks {
  static constexpr const char* kName = "fp8_amax_of_ranks";
  In<std::uint32_t> of_ranks;  // [ranks, n]
  Out<std::uint32_t> amax;     // [1, n]
};

// y[r, o] = st(mul(DOT8 over k of x[r, k], w_e[o, k], 2^-(kx + kw))); rows not in use +0.
struct Fp8LinearForward {
  static constexpr const char* kName = "fp8_linear_forward";
  In<e4m3> x;                            // [R, in up to 16]
  In<e4m3> w;                            // [E * out, in up to 16]
  In<float> x_scale;                     // [1, S] 2^-kx
  In<float> w_scale;                     // [1, E] 2^-kw
  In<std::int32_t> row_document = {};    // [1, R] or absent.
  In<std::int32_t> start = {};           // [1, S] or absent.
  In<std::int32_t> rows = {};            // [1, S] or absent.
  Out<bf16> y;                           // [R, out]
  Scratch<std::uint8_t> workspace = {};  // As in linear.h.
};
// dx[r, k] = st(mul(DOT8 over o of dy[r, o], w_e[o, k], 2^-(ky + kw))); rows not in use +0.
struct Fp8LinearInputGradient {
  static constexpr const char* kName = "fp8_linear_input_gradient";
  In<e5m2> dy;         // [R, out up to 16]
  In<e4m3> w;          // [E * in, out up to 16]: transposed, one expert below the other.
  In<float> dy_scale;  // [1, S] 2^-ky
  In<float> w_scale;   // [1, E] 2^-kw
  In<std::int32_t> row_document = {};  // [1, R] or absent.
  In<std::int32_t> start = {};         // [1, S] or absent.
  In<std::int32_t> rows = {};          // [1, S] or absent.
  Out<bf16> dx;                        // [R, in]
  Scratch<std::uint8_t> workspace = {};
};
// dw_s[o, k] = mul(DOT8 over the segment's rows i of dy[i, o], x[i, k], 2^-(ky + kx)); order,
// groups and runs from the segment's first row; no rows: +0. Either it is written to dw, or there
// is no dw and the accumulator takes it: acc = add(acc, dw). Of experts with the rows of several
// sources, S = E * sources, it computes the E gradients of one source.
struct Fp8LinearWeightGradient {
  static constexpr const char* kName = "fp8_linear_weight_gradient";
  In<e5m2> dy;                  // [out, P] transposed
  In<e4m3> x;                   // [in, P] transposed
  In<float> dy_scale;           // [1, S] 2^-ky
  In<float> x_scale;            // [1, S] 2^-kx
  In<std::int32_t> start = {};  // [1, S], or absent: one segment of P rows.
  In<std::int32_t> rows = {};   // [1, S] or absent.
  Out<float> dw = {};           // [S / sources * out, in] or absent.
  Accum<float> acc = {};        // [S / sources * out, in] or absent.
  Scratch<std::uint8_t> workspace = {};
  std::int32_t source = 0, sources = 1;
};

void check(const Fp8ClearAmax& op);
void run(HostQueue, const Fp8ClearAmax& op);
void run(CudaQueue, const Fp8ClearAmax& op);
void check(const Fp8Amax& op);
void run(HostQueue, const Fp8Amax& op);
void run(CudaQueue, const Fp8Amax& op);
template <class F>
void check(const Fp8Exponent<F>& op);
template <class F>
void run(HostQueue, const Fp8Exponent<F>& op);
template <class F>
void run(CudaQueue, const Fp8Exponent<F>& op);
template <class F>
void check(const Fp8Roll<F>& op);
template <class F>
void run(HostQueue, const Fp8Roll<F>& op);
template <class F>
void run(CudaQueue, const Fp8Roll<F>& op);
template <class F>
void check(const Fp8Cast<F>& op);
template <class F>
void run(HostQueue, const Fp8Cast<F>& op);
template <class F>
void run(CudaQueue, const Fp8Cast<F>& op);
void check(const Fp8Transpose& op);
void run(HostQueue, const Fp8Transpose& op);
void run(CudaQueue, const Fp8Transpose& op);
void check(const Fp8AmaxOfRanks& op);
void run(HostQueue, const Fp8AmaxOfRanks& op);
void run(CudaQueue, const Fp8AmaxOfRanks& op);
void check(const Fp8LinearForward& op);
void run(HostQueue, const Fp8LinearForward& op);
void run(CudaQueue, const Fp8LinearForward& op);
void check(const Fp8LinearInputGradient& op);
void run(HostQueue, const Fp8LinearInputGradient& op);
void run(CudaQueue, const Fp8LinearInputGradient& op);
void check(const Fp8LinearWeightGradient& op);
void run(HostQueue, const Fp8LinearWeightGradient& op);
void run(CudaQueue, const Fp8LinearWeightGradient& op);

}  // namespace lockstep
