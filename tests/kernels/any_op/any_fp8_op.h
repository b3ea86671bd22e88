// Small valid instances of the ops of fp8.
#pragma once

#include <optional>

#include "kernels/core/fp8_families.h"
#include "kernels/core/row_segments.h"
#include "kernels/diagnostics/fp8_dots.h"
#include "kernels/ops/fp8.h"
#include "tests/kernels/any_op/op_builder.h"

namespace lockstep {

// The rows of a matrix with their segments: those of a pack, or those of an expert buffer.
struct DrawnRows {
  explicit DrawnRows(OpBuilder& b) {
    if (b.chance(2)) {
      pack.emplace(b);
      rows = pack->rows;
      row_document = pack->row_document;
    } else {
      routing.emplace(b);
      rows = routing->buffer_rows;
      segments = routing->experts;
      row_document = routing->row_pair;
      start = routing->start;
      sizes = routing->rows;
    }
    // Some experts have rows from two ranks.
    experts = segments % 2 == 0 && b.chance(2) ? segments / 2 : segments;
  }
  bool used(std::int64_t r) const {
    return pack ? !pack->padding(r) : routing->host.row_pair.data[r] >= 0;
  }
  RowSegments on_host() const {
    if (pack) return {nullptr, nullptr, rows, 1};
    return {routing->host.start.data, routing->host.rows.data, rows, segments};
  }
  // `draw` is for the rows of a pack.
  template <class T = bf16>
  Tensor<T> values(OpBuilder& b, std::int64_t cols, const std::function<float()>& draw = {}) const {
    return pack ? b.row_values<T>(*pack, cols, draw) : routing->buffer_values<T>(b, cols);
  }

  std::optional<DrawnPack> pack;
  std::optional<DrawnRouting> routing;
  std::int64_t rows = 0, segments = 1, experts = 1;
  Tensor<std::int32_t> row_document, start, sizes;
};

// Rows of codes, aligned; in half of all cases with a gap between rows.
template <class F>
Tensor<F> place_codes(OpBuilder& b, std::int64_t rows, std::int64_t cols,
                      const std::vector<F>& contents) {
  const std::int64_t pitch = cols + 16 * b.between(0, 1);
  std::vector<F> all(static_cast<std::size_t>(rows * pitch), F{0x7f});
  for (std::int64_t i = 0; i < rows && !contents.empty(); ++i)
    std::copy_n(contents.begin() + i * cols, cols, all.begin() + i * pitch);
  return {b.place(1, rows * pitch, all).data, rows, cols, pitch};
}
// Codes of numbers in every place.
template <class F>
std::vector<F> drawn_codes(OpBuilder& b, std::int64_t rows, std::int64_t cols, bool right) {
  // The last family has infinities and NaN.
  const Fp8Family& family = kFp8Families[b.between(0, std::size(kFp8Families) - 2)];
  const std::uint64_t seed = b.next();
  Drawn draw(b.next());
  std::vector<F> codes(static_cast<std::size_t>(rows * cols));
  for (std::int64_t i = 0; i < rows; ++i)
    draw_code_row(draw, family, seed, i, cols, right, codes.data() + i * cols);
  return codes;
}
// The left factor of a product of rows; a row not in use may hold anything.
template <class F>
Tensor<F> row_codes(OpBuilder& b, const DrawnRows& rows, std::int64_t cols) {
  std::vector<F> codes = drawn_codes<F>(b, rows.rows, cols, false);
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    if (!rows.used(r))
      std::fill_n(codes.begin() + r * cols, cols, fp8_code<F>(st<bf16>(b.padding()), 0));
  }
  return place_codes(b, rows.rows, cols, codes);
}
// Transposed codes as a cast leaves them: 00 wherever no row in use stands.
template <class F>
Tensor<F> transposed_codes(OpBuilder& b, const DrawnRows& rows, std::int64_t lines) {
  const RowSegments segments = rows.on_host();
  const std::int64_t cols = transposed_columns(rows.rows, rows.segments);
  std::vector<F> codes = drawn_codes<F>(b, lines, cols, true);
  std::vector<bool> used(static_cast<std::size_t>(cols));
  for (std::int64_t s = 0; s < segments.count; ++s) {
    const std::int64_t place = segments.listed() ? segments.place(s) : 0;
    for (std::int64_t i = 0; i < segments.size(s); ++i)
      used[static_cast<std::size_t>(place + i)] = rows.used(segments.first(s) + i);
  }
  for (std::size_t e = 0; e < codes.size(); ++e) {
    if (!used[e % used.size()]) codes[e] = F{0};
  }
  return place_codes(b, lines, cols, codes);
}
inline Tensor<float> drawn_scales(OpBuilder& b, std::int64_t count) {
  return b.values(1, count, [&] { return fp8_power(static_cast<std::int32_t>(b.between(-9, 9))); });
}
inline Tensor<std::int32_t> drawn_exponents(OpBuilder& b, std::int64_t count) {
  std::vector<std::int32_t> k;
  for (std::int64_t s = 0; s < count; ++s)
    k.push_back(static_cast<std::int32_t>(b.chance(8) ? b.between(-40, 40) : b.between(-2, 9)));
  return b.place(1, count, k);
}
inline Tensor<std::uint32_t> drawn_amaxes(OpBuilder& b, std::int64_t rows, std::int64_t cols) {
  std::vector<std::uint32_t> words;
  for (std::int64_t s = 0; s < rows * cols; ++s) {
    const std::int64_t fields = b.chance(4) ? 256 : b.chance(4) ? 1 : 140;
    const std::int64_t field = b.chance(8) ? 0 : b.between(fields == 140 ? 110 : 0, fields - 1);
    words.push_back(static_cast<std::uint32_t>(field << 23 | b.between(0, 127) << 16));
  }
  return b.place(rows, cols, words);
}

inline void draw(OpBuilder& b, Fp8ClearAmax& op) {
  op = {.amax = b.out<std::uint32_t>(1, b.between(1, 300))};
}
// Rows of a stacked weight, [E * own, cols]: all, or a part that begins and ends anywhere.
struct DrawnStack {
  DrawnStack(OpBuilder& b, std::int64_t most) : experts(b.between(1, 4)), own(b.between(1, most)) {
    rows = experts * own;
    if (!b.chance(3)) return;
    segment_rows = own;
    first_row = b.between(0, rows - 1);
    rows = b.between(1, rows - first_row);
  }
  std::int64_t experts, own, rows, first_row = 0, segment_rows = 0;
};

inline void draw(OpBuilder& b, Fp8Amax& op) {
  if (b.chance(3)) {
    const DrawnStack stack(b, 30);
    op = {.x = b.values<bf16>(stack.rows, b.width<bf16>()),
          .amax = drawn_amaxes(b, 1, stack.experts),
          .first_row = stack.first_row,
          .segment_rows = stack.segment_rows};
    return;
  }
  const DrawnRows rows(b);
  op = {.x = rows.values(b, b.width<bf16>()),
        .row_document = rows.row_document,
        .start = rows.start,
        .rows = rows.sizes,
        .amax = b.chance(4)
                    ? drawn_amaxes(b, 1, rows.segments)
                    : b.place(1, rows.segments,
                              std::vector<std::uint32_t>(static_cast<std::size_t>(rows.segments)))};
}
template <class F>
void draw(OpBuilder& b, Fp8Exponent<F>& op) {
  const std::int64_t experts = b.between(1, 9), segments = experts * b.between(1, 3);
  const bool held = b.chance(2), pending = b.chance(2), amax = !held || pending || b.chance(2);
  op = {.amax = amax ? drawn_amaxes(b, 1, segments) : Tensor<std::uint32_t>{},
        .held = held ? drawn_exponents(b, experts) : Tensor<std::int32_t>{},
        .pending = pending ? drawn_amaxes(b, 1, experts) : Tensor<std::uint32_t>{},
        .k = b.out<std::int32_t>(1, segments),
        .scale = b.out<float>(1, segments)};
}
template <class F>
void draw(OpBuilder& b, Fp8Roll<F>& op) {
  const std::int64_t count = b.between(1, 20), length = b.one_of({1, 2, 16, 40, 100});
  op = {
      .state = b.state(),
      .pending = drawn_amaxes(b, 1, count),
      .of_ranks = b.chance(2) ? drawn_amaxes(b, b.between(1, 40), count) : Tensor<std::uint32_t>{},
      .history = drawn_amaxes(b, count, length),
      .k = drawn_exponents(b, count),
      .margin = static_cast<std::int32_t>(b.between(0, 8)),
      .most_recent = b.chance(2)};
}
template <class F>
void draw(OpBuilder& b, Fp8Cast<F>& op) {
  const std::int64_t cols = b.width<bf16>();
  const bool both = b.chance(2), rowwise = both || b.chance(2), transposed = both || !rowwise;
  if (b.chance(3)) {
    const DrawnStack stack(b, 70);
    op.x = b.values<bf16>(stack.rows, cols);
    op.k = drawn_exponents(b, stack.experts);
    op.first_row = stack.first_row;
    op.segment_rows = stack.segment_rows;
    const bool whole = stack.segment_rows == 0;
    if (transposed && whole)
      op.transposed = place_codes<F>(b, stack.experts * cols, fp8_padded(stack.own), {});
    if (!op.transposed) op.codes = place_codes<F>(b, op.x.rows, fp8_padded(cols), {});
    if (!op.transposed) return;
  } else {
    const DrawnRows rows(b);
    op.x = rows.values(b, cols);
    op.row_document = rows.row_document;
    op.start = rows.start;
    op.rows = rows.sizes;
    op.k = drawn_exponents(b, rows.segments);
    const std::int64_t columns = transposed_columns(rows.rows, rows.segments);
    if (transposed) op.transposed = place_codes<F>(b, cols, columns, {});
  }
  if (rowwise) op.codes = place_codes<F>(b, op.x.rows, fp8_padded(cols), {});
}
inline void draw(OpBuilder& b, Fp8Transpose& op) {
  const std::int64_t rows = b.between(1, 150), cols = b.between(1, 150),
                     matrices = b.chance(2) ? b.between(1, 5) : 1;
  op = {.codes = place_codes(b, matrices * rows, fp8_padded(cols),
                             drawn_codes<e4m3>(b, matrices * rows, fp8_padded(cols), true)),
        .transposed = place_codes<e4m3>(b, matrices * cols, fp8_padded(rows), {}),
        .rows = rows,
        .cols = cols,
        .matrices = matrices};
}
inline void draw(OpBuilder& b, Fp8AmaxOfRanks& op) {
  const std::int64_t count = b.between(1, 300);
  op = {.of_ranks = drawn_amaxes(b, b.between(1, 9), count),
        .amax = b.out<std::uint32_t>(1, count)};
}
inline std::int64_t drawn_depth(OpBuilder& b) {
  return 16 * (b.chance(3) ? b.between(9, 30) : b.between(1, 9));
}
inline void draw(OpBuilder& b, Fp8LinearForward& op) {
  const DrawnRows rows(b);
  const std::int64_t in = drawn_depth(b), out = b.chance(4) ? b.between(1, 160) : b.between(1, 40);
  op = {.x = row_codes<e4m3>(b, rows, in),
        .w = place_codes(b, rows.experts * out, in,
                         drawn_codes<e4m3>(b, rows.experts * out, in, true)),
        .x_scale = drawn_scales(b, rows.segments),
        .w_scale = drawn_scales(b, rows.experts),
        .row_document = rows.row_document,
        .start = rows.start,
        .rows = rows.sizes,
        .y = b.out<bf16>(rows.rows, out)};
}
inline void draw(OpBuilder& b, Fp8LinearInputGradient& op) {
  const std::int64_t out = drawn_depth(b);
  const DrawnRows rows(b);
  const std::int64_t in = b.chance(4) ? b.between(1, 160) : b.between(1, 40);
  op = {.dy = row_codes<e5m2>(b, rows, out),
        .w = place_codes(b, rows.experts * in, out,
                         drawn_codes<e4m3>(b, rows.experts * in, out, true)),
        .dy_scale = drawn_scales(b, rows.segments),
        .w_scale = drawn_scales(b, rows.experts),
        .row_document = rows.row_document,
        .start = rows.start,
        .rows = rows.sizes,
        .dx = b.out<bf16>(rows.rows, in)};
}
inline void draw(OpBuilder& b, Fp8LinearWeightGradient& op) {
  const DrawnRows rows(b);
  const std::int64_t widest = rows.segments > 16 ? 20 : 150;
  const std::int64_t out = b.between(1, widest), in = b.between(1, widest);
  op = {.dy = transposed_codes<e5m2>(b, rows, out),
        .x = transposed_codes<e4m3>(b, rows, in),
        .dy_scale = drawn_scales(b, rows.segments),
        .x_scale = drawn_scales(b, rows.segments),
        .start = rows.start,
        .rows = rows.sizes};
  op.sources = static_cast<std::int32_t>(rows.segments / rows.experts);
  op.source = static_cast<std::int32_t>(b.between(0, op.sources - 1));
  if (b.chance(2)) {
    op.acc = b.values(rows.experts * out, in);
  } else {
    op.dw = b.out<float>(rows.experts * out, in);
  }
}

template <class A, class B>
void draw(OpBuilder& b, Fp8Dots<A, B>& op) {
  const std::int64_t m = b.between(1, 150), n = b.between(1, 150), k = drawn_depth(b);
  op = {.a = place_codes(b, m, k, drawn_codes<A>(b, m, k, false)),
        .b = place_codes(b, n, k, drawn_codes<B>(b, n, k, true)),
        .d = b.out<float>(m, n)};
}

}  // namespace lockstep
