#include "kernels/ops/fp8.h"

#include "kernels/core/row_segments.h"
#include "kernels/core/shape.h"

namespace lockstep {
namespace {

// `row_document`, `start` and `rows` of a matrix of `total` rows and `segments` segments.
template <class Op>
void require_rows(const Op& op, std::int64_t total, std::int64_t segments) {
  if constexpr (requires { op.segment_rows; }) {
    if (op.segment_rows > 0) {
      require(!op.rows && op.first_row >= 0 && op.first_row + total <= segments * op.segment_rows,
              "a part of equal segments lies inside them");
      return;
    }
  }
  if constexpr (requires { op.row_document; }) {
    if (op.row_document) require_shape(op.row_document, 1, total, "row_document is [1, R]");
  }
  require(!op.start == !op.rows, "segments are listed by start and rows, or by neither");
  if (op.rows) {
    require_shape(op.start, 1, segments, "start is [1, S]");
    require_shape(op.rows, 1, segments, "rows is [1, S]");
  } else {
    require(total % segments == 0, "segments that are not listed are equal parts");
  }
}
template <class F, Access kAccess>
void require_codes(const Operand<F, kAccess>& x, std::int64_t rows, std::int64_t cols,
                   const char* what) {
  require_shape(x, rows, cols, what);
  require(cols % kFp8Align == 0 && (rows == 1 || x.pitch % kFp8Align == 0),
          "rows of codes and their pitch are multiples of 16");
}
// Forward and input gradient: a [R, K] by segments, b [E * n, K] by experts, c [R, n].
template <class Op, class A, class B>
void require_product(const Op& op, const In<A>& a, const In<B>& b, const In<float>& a_scale,
                     const In<float>& b_scale, const Out<bf16>& c) {
  const std::int64_t segments = a_scale.cols, experts = b_scale.cols;
  require_shape(a_scale, 1, segments, "the left factor's scale is [1, S]");
  require_shape(b_scale, 1, experts, "the weight's scale is [1, E]");
  require(segments % experts == 0, "every expert has as many segments");
  require(op.rows || segments == 1, "segments of activations are listed");
  require_rows(op, a.rows, segments);
  require_codes(a, a.rows, a.cols, "the left factor is [R, K]");
  require_codes(b, experts * c.cols, a.cols, "the weight is [E * n, K]");
  require_shape(c, a.rows, c.cols, "the result is [R, n]");
}

}  // namespace

void check(const Fp8ClearAmax& op) { require_shape(op.amax, 1, op.amax.cols, "amax is [1, S]"); }
void check(const Fp8Amax& op) {
  require_shape(op.x, op.x.rows, op.x.cols, "x is [R, cols]");
  require_shape(op.amax, 1, op.amax.cols, "amax is [1, S]");
  require_rows(op, op.x.rows, op.amax.cols);
}

template <class F>
void check(const Fp8Exponent<F>& op) {
  const std::int64_t segments = op.k.cols;
  require_shape(op.k, 1, segments, "k is [1, S]");
  require_shape(op.scale, 1, segments, "scale is [1, S]");
  require(op.amax || op.held, "an exponent comes from an amax or is held");
  require(op.amax || !op.pending, "pending takes an amax");
  if (op.amax) require_shape(op.amax, 1, segments, "amax is [1, S]");
  if (op.held) require_shape(op.held, 1, op.held.cols, "held is [1, E]");
  if (op.held) require(segments % op.held.cols == 0, "every expert has as many segments");
  if (op.pending) require_shape(op.pending, 1, op.pending.cols, "pending is [1, E]");
  if (op.pending) require(segments % op.pending.cols == 0, "every expert has as many segments");
}
template <class F>
void check(const Fp8Roll<F>& op) {
  const std::int64_t n = op.pending.cols;
  require_shape(op.state, 1, 1, "state is [1, 1]");
  require_shape(op.pending, 1, n, "pending is [1, n]");
  if (op.of_ranks) require_shape(op.of_ranks, op.of_ranks.rows, n, "of_ranks is [ranks, n]");
  require_shape(op.history, n, op.history.cols, "history is [n, H]");
  require_shape(op.k, 1, n, "k is [1, n]");
  require(op.margin >= 0, "a margin is not negative");
}

template <class F>
void check(const Fp8Cast<F>& op) {
  const std::int64_t segments = op.k.cols, rows = op.x.rows, cols = op.x.cols;
  require_shape(op.x, rows, cols, "x is [R, cols]");
  require_shape(op.k, 1, segments, "k is [1, S]");
  require_rows(op, rows, segments);
  require(op.codes || op.transposed, "a cast writes codes, transposed codes or both");
  if (op.codes) require_codes(op.codes, rows, fp8_padded(cols), "codes is [R, cols up to 16]");
  if (!op.transposed) return;
  require(op.segment_rows == 0, "codes of a part of equal segments are not transposed");
  if (op.rows) {
    require_codes(op.transposed, cols, transposed_columns(rows, segments),
                  "transposed is [cols, R up to 16 + 16 (S - 1)]");
  } else {
    require_codes(op.transposed, segments * cols, fp8_padded(rows / segments),
                  "transposed is [S * cols, R / S up to 16]");
  }
}

void check(const Fp8Transpose& op) {
  require(op.matrices > 0, "there is a matrix");
  require_codes(op.codes, op.matrices * op.rows, fp8_padded(op.cols),
                "codes is [E * R, cols up to 16]");
  require_codes(op.transposed, op.matrices * op.cols, fp8_padded(op.rows),
                "transposed is [E * cols, R up to 16]");
}
void check(const Fp8AmaxOfRanks& op) {
  require_shape(op.of_ranks, op.of_ranks.rows, op.amax.cols, "of_ranks is [ranks, n]");
  require_shape(op.amax, 1, op.amax.cols, "amax is [1, n]");
}

void check(const Fp8LinearForward& op) {
  require_product(op, op.x, op.w, op.x_scale, op.w_scale, op.y);
}
void check(const Fp8LinearInputGradient& op) {
  require_product(op, op.dy, op.w, op.dy_scale, op.w_scale, op.dx);
}
void check(const Fp8LinearWeightGradient& op) {
  const std::int64_t segments = op.x_scale.cols;
  require_shape(op.x_scale, 1, segments, "x_scale is [1, S]");
  require_shape(op.dy_scale, 1, segments, "dy_scale is [1, S]");
  require(op.rows || segments == 1, "segments of activations are listed");
  require_rows(op, op.x.cols, segments);
  require_codes(op.dy, op.dy.rows, op.dy.cols, "dy is [out, P]");
  require_codes(op.x, op.x.rows, op.dy.cols, "x is [in, P]");
  require(!op.dw != !op.acc, "a weight gradient is either written or accumulated");
  require(op.source >= 0 && op.source < op.sources && segments % op.sources == 0,
          "every expert has a segment of each source");
  const std::int64_t rows = segments / op.sources * op.dy.rows;
  if (op.dw) require_shape(op.dw, rows, op.x.rows, "dw is [S / sources * out, in]");
  if (op.acc) require_shape(op.acc, rows, op.x.rows, "acc is [S / sources * out, in]");
}

template void check(const Fp8Exponent<e4m3>&);
template void check(const Fp8Exponent<e5m2>&);
template void check(const Fp8Roll<e4m3>&);
template void check(const Fp8Roll<e5m2>&);
template void check(const Fp8Cast<e4m3>&);
template void check(const Fp8Cast<e5m2>&);

}  // namespace lockstep
