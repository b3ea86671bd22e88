#include "kernels/ops/fp8.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "kernels/core/row_segments.h"
#include "kernels/host/fp8/dot8.h"

namespace lockstep {
namespace {

// The segment of a row in use; -1 for any other row.
template <class Op>
std::int64_t used_segment(const Op& op, const RowSegments& segments, std::int64_t r) {
  return op.row_document && op.row_document.data[r] < 0 ? -1 : segments.of_row(r);
}
void require_inside(const RowSegments& segments) {
  for (std::int64_t s = 0; s < segments.count; ++s) {
    require(segments.first(s) >= 0 && segments.size(s) >= 0 &&
                segments.first(s) + segments.size(s) <= segments.total,
            "a segment's rows lie in the buffer");
  }
}

// For planted faults: exponents without a part of their rule.
template <class F>
std::int32_t uncapped(std::uint32_t amax) {
  const std::int32_t k = fp8_exponent<F>(amax);
  const std::int32_t over = (amax & 0x7fffffu) > 0x600000u ? 1 : 0;
  const bool capped = k == F::kCap && amax >= 0x00800000u;
  return capped ? F::kLargest - (static_cast<std::int32_t>(amax >> 23) - 127) - over : k;
}
template <class F>
std::int32_t saturating(std::uint32_t amax) {
  const bool over = (amax & 0x7fffffu) > 0x600000u && fp8_amax_is_finite(amax);
  return fp8_clamped<F>(fp8_exponent<F>(amax) + (over ? 1 : 0));
}
template <class F>
std::int32_t exponent_of(std::uint32_t amax) {
  const auto rule = faulty("fp8-exponent-without-a-cap", &fp8_exponent<F>, &uncapped<F>);
  return faulty("fp8-exponent-saturates-above-seven-quarters", rule, &saturating<F>)(amax);
}

// For planted faults: codes rounded otherwise.
template <class F>
F truncated(bf16 x, std::int32_t k) {
  F code = fp8_code<F>(x, k);
  const float v = mul(load(x), fp8_power(k));
  const bool rounded_up = !fp8_is_nan(code) && abs(load_fp8(code)) > abs(v);
  code.bits = static_cast<std::uint8_t>(code.bits - (rounded_up ? 1 : 0));
  return code;
}
template <class F>
F overflowing(bf16 x, std::int32_t k) {
  const F code = fp8_code<F>(x, k), top{static_cast<std::uint8_t>(F::kTop)};
  return abs(mul(load(x), fp8_power(k))) > load_fp8(top) ? F{0x7f} : code;
}
template <class F>
F flushed(bf16 x, std::int32_t k) {
  F code = fp8_code<F>(x, k);
  const bool subnormal = (code.bits & 0x7f) < 1 << F::kFraction;
  code.bits = static_cast<std::uint8_t>(subnormal ? code.bits & 0x80 : code.bits);
  return code;
}

// codes[i] = fp8_code<F>(x[i], k) for i < n, without branches, so that compilers vectorise it.
template <class F>
void codes_of_row(const bf16* __restrict x, std::int64_t n, std::int32_t k, F* __restrict codes) {
  const float power = fp8_power(k);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t u = bits(mul(load(x[i]), power)), magnitude = u & 0x7fffffffu;
    const int field = static_cast<int>(magnitude >> 23), e = std::max(field, 1) - 127;
    const std::uint32_t m = (magnitude & 0x7fffffu) | (field > 0 ? 0x800000u : 0u);
    // From 26 on everything is rounded off.
    const int right = std::min(23 - F::kFraction + std::max(1 - F::kBias - e, 0), 26);
    const std::uint32_t j = (m + (1u << (right - 1)) - 1u + ((m >> right) & 1u)) >> right;
    const std::uint32_t binade = static_cast<std::uint32_t>(std::max(e + F::kBias - 1, 0));
    const std::uint32_t c = std::min((binade << F::kFraction) + j, F::kTop) | ((u >> 24) & 0x80u);
    codes[i].bits = static_cast<std::uint8_t>(magnitude > 0x7f800000u ? 0x7fu : c);
  }
}
template <class F, F (*code)(bf16, std::int32_t)>
void each_code(const bf16* x, std::int64_t n, std::int32_t k, F* codes) {
  std::transform(x, x + n, codes, [k](bf16 one) { return code(one, k); });
}
template <class F>
using Rounding = void (*)(const bf16*, std::int64_t, std::int32_t, F*);
template <class F>
Rounding<F> rounding() {
  const Rounding<F> right =
      faulty("fp8-codes-truncated", &codes_of_row<F>, &each_code<F, truncated<F>>);
  return faulty("fp8-codes-overflow-to-nan", right, &each_code<F, overflowing<F>>);
}

template <class F>
void clear_codes(const Out<F>& x) {
  for (std::int64_t i = 0; i < x.rows; ++i) std::memset(x.row(i), 0, x.cols);
}

}  // namespace

void run(HostQueue, const Fp8ClearAmax& op) { std::fill_n(op.amax.data, op.amax.cols, 0u); }

void run(HostQueue, const Fp8Amax& op) {
  const RowSegments segments = segments_of(op, op.x.rows, op.amax.cols);
  require_inside(segments);
  const std::uint32_t mask = faulty("fp8-amax-takes-the-sign", 0x7fffffffu, 0xffffffffu);
  for (std::int64_t r = 0; r < op.x.rows; ++r) {
    const std::int64_t used = used_segment(op, segments, r);
    const std::int64_t s = faulty("fp8-amax-of-padding-rows", used, segments.of_row(r));
    if (s < 0) continue;
    std::uint32_t most = op.amax.data[s];
    const bf16* const row = op.x.row(r);
    for (std::int64_t c = 0; c < op.x.cols; ++c) most = std::max(most, bits(load(row[c])) & mask);
    op.amax.data[s] = most;
  }
}

template <class F>
void run(HostQueue, const Fp8Exponent<F>& op) {
  const std::int64_t segments = op.k.cols;
  for (std::int64_t s = 0; s < segments; ++s) {
    const std::uint32_t own = op.amax ? op.amax.data[s] : 0;
    const std::uint32_t all =
        op.amax ? *std::max_element(op.amax.data, op.amax.data + segments) : 0;
    const std::uint32_t amax = faulty("fp8-one-amax-for-all-experts", own, all);
    const std::int32_t k =
        op.held ? op.held.data[s / (segments / op.held.cols)] : exponent_of<F>(amax);
    op.k.data[s] = k;
    op.scale.data[s] = fp8_power(-k);
  }
  for (std::int64_t s = 0; op.pending && s < segments; ++s) {
    const std::int64_t sources = segments / op.pending.cols, first = s / sources * sources;
    const std::int64_t of = faulty("fp8-history-of-the-first-source", s, first);
    std::uint32_t& pending = op.pending.data[s / sources];
    pending = std::max(pending, op.amax.data[of]);
  }
}

template <class F>
void run(HostQueue, const Fp8Roll<F>& op) {
  const std::int64_t place = op.state.data->step % static_cast<std::uint64_t>(op.history.cols);
  for (std::int64_t n = 0; n < op.pending.cols; ++n) {
    std::uint32_t* history = op.history.row(n);
    history[place] = op.of_ranks ? 0 : op.pending.data[n];
    for (std::int64_t r = 0; r < op.of_ranks.rows; ++r)
      history[place] = std::max(history[place], op.of_ranks.row(r)[n]);
    const std::uint32_t amax =
        op.most_recent ? history[place] : *std::max_element(history, history + op.history.cols);
    if (amax > 0 && fp8_amax_is_finite(amax))
      op.k.data[n] = fp8_clamped<F>(fp8_exponent<F>(amax) - op.margin);
    op.pending.data[n] = faulty("fp8-roll-keeps-pending", 0u, op.pending.data[n]);
  }
}

template <class F>
void run(HostQueue, const Fp8Cast<F>& op) {
  const RowSegments segments = segments_of(op, op.x.rows, op.k.cols);
  require_inside(segments);
  if (op.codes) clear_codes(op.codes);
  if (op.transposed) clear_codes(op.transposed);
  const Rounding<F> take_codes =
      faulty("fp8-subnormal-codes-flushed", rounding<F>(), &each_code<F, flushed<F>>);
  std::vector<F> codes(op.x.cols);
  for (std::int64_t r = 0; r < op.x.rows; ++r) {
    const std::int64_t s = used_segment(op, segments, r);
    if (s < 0) continue;
    // Where the row stands in the transposed codes.
    const std::int64_t in_segment = r - segments.first(s);
    const std::int64_t top = segments.listed() ? 0 : s * op.x.cols;
    const std::int64_t column = segments.listed() ? segments.place(s) + in_segment : in_segment;
    take_codes(op.x.row(r), op.x.cols, op.k.data[s], codes.data());
    if (op.codes) std::copy(codes.begin(), codes.end(), op.codes.row(r));
    for (std::int64_t c = 0; op.transposed && c < op.x.cols; ++c)
      op.transposed.row(top + c)[column] = at(codes, c);
  }
}

void run(HostQueue, const Fp8Transpose& op) {
  clear_codes(op.transposed);
  for (std::int64_t all = 0; all < op.matrices * op.rows; ++all) {
    const std::int64_t top = all / op.rows * op.cols, r = all % op.rows;
    for (std::int64_t c = 0; c < op.cols; ++c) op.transposed.row(top + c)[r] = op.codes.row(all)[c];
  }
}

void run(HostQueue, const Fp8AmaxOfRanks& op) {
  for (std::int64_t n = 0; n < op.amax.cols; ++n) {
    std::uint32_t most = 0;
    for (std::int64_t r = 0; r < op.of_ranks.rows; ++r)
      most = std::max(most, op.of_ranks.row(r)[n]);
    op.amax.data[n] = most;
  }
}

namespace {

Dot8Kernel fastest() {
  static const Dot8Kernel kernel = dot8_forms().front().kernel;
  return kernel;
}

// c[r, j] = st(mul(DOT8(a_r, b_j), scale)) for the rows of each segment; rows not in use +0.
template <class Op, class A, class B>
void product_of_rows(const Op& op, const In<A>& a, const In<B>& b, const In<float>& a_scale,
                     const In<float>& b_scale, const Out<bf16>& c) {
  const RowSegments segments = segments_of(op, a.rows, a_scale.cols);
  require_inside(segments);
  for (std::int64_t s = 0; s < segments.count; ++s) {
    const std::int64_t sources = segments.count / b_scale.cols, expert = s / sources;
    const std::int64_t from = segments.first(s);
    const std::int64_t of = faulty("fp8-rows-scaled-by-the-first-source", s, expert * sources);
    const float scale = mul(a_scale.data[of], b_scale.data[expert]);
    const Fp8View<A> left{a.row(from), a.pitch};
    const Fp8View<B> right{b.row(expert * c.cols), b.pitch};
    dot8_product(fastest(), segments.size(s), c.cols, a.cols, left, right,
                 [&](std::int64_t top, std::int64_t rows, std::int64_t first, std::int64_t columns,
                     const float* tile) {
                   for (std::int64_t i = 0; i < rows; ++i) {
                     for (std::int64_t j = 0; j < columns; ++j)
                       c.row(from + top + i)[first + j] =
                           st<bf16>(mul(tile[i * kDot8Lanes + j], scale));
                   }
                 });
  }
  for (std::int64_t r = 0; r < c.rows; ++r) {
    if (used_segment(op, segments, r) < 0) std::fill_n(c.row(r), c.cols, st<bf16>(0.0f));
  }
}

}  // namespace

void run(HostQueue, const Fp8LinearForward& op) {
  product_of_rows(op, op.x, op.w, op.x_scale, op.w_scale, op.y);
}
void run(HostQueue, const Fp8LinearInputGradient& op) {
  product_of_rows(op, op.dy, op.w, op.dy_scale, op.w_scale, op.dx);
}
void run(HostQueue, const Fp8LinearWeightGradient& op) {
  const std::int64_t outputs = op.dy.rows, inputs = op.x.rows;
  const bool rounds = faulty("fp8-gradient-rounded-to-bf16", false, true);
  for (std::int64_t s = op.source; s < op.x_scale.cols; s += op.sources) {
    const RowSegments segments = segments_of(op, op.x.cols, op.x_scale.cols);
    const std::int64_t place = segments.listed() ? segments.place(s) : 0;
    const float scale = mul(op.dy_scale.data[s], op.x_scale.data[s]);
    require(place + segments.size(s) <= op.x.cols, "a segment's rows lie in the codes");
    dot8_product(fastest(), outputs, inputs, segments.size(s),
                 Fp8View<e5m2>{op.dy.data + place, op.dy.pitch},
                 Fp8View<e4m3>{op.x.data + place, op.x.pitch},
                 [&](std::int64_t top, std::int64_t rows, std::int64_t first, std::int64_t columns,
                     const float* tile) {
                   for (std::int64_t i = 0; i < rows; ++i) {
                     for (std::int64_t j = 0; j < columns; ++j) {
                       const float sum = tile[i * kDot8Lanes + j];
                       const float g = mul(rounds ? load(st<bf16>(sum)) : sum, scale);
                       const std::int64_t o = s / op.sources * outputs + top + i, k = first + j;
                       if (op.dw) op.dw.row(o)[k] = g;
                       if (op.acc) op.acc.row(o)[k] = add(op.acc.row(o)[k], g);
                     }
                   }
                 });
  }
}

template void run(HostQueue, const Fp8Exponent<e4m3>&);
template void run(HostQueue, const Fp8Exponent<e5m2>&);
template void run(HostQueue, const Fp8Roll<e4m3>&);
template void run(HostQueue, const Fp8Roll<e5m2>&);
template void run(HostQueue, const Fp8Cast<e4m3>&);
template void run(HostQueue, const Fp8Cast<e5m2>&);

}  // namespace lockstep
