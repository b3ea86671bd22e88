// The ops of fp8 by themselves and one behind the other: the rolls and the layer of arithmetic.md
// 5.6, segments, rows that are not in use.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "kernels/core/at.h"
#include "kernels/core/fda_families.h"
#include "kernels/core/row_segments.h"
#include "kernels/ops/fp8.h"

namespace lockstep {
namespace {

using I = std::int32_t;
using U = std::uint32_t;

template <class T>
Tensor<T> view(std::vector<T>& x, std::int64_t rows, std::int64_t cols) {
  return tensor(x.data(), rows, cols);
}
template <class T>
Tensor<T> words(std::vector<T>& x) {
  return tensor(x.data(), 1, static_cast<std::int64_t>(x.size()));
}
template <class Op>
void checked_run(const Op& op) {
  check(op);
  run(HostQueue{}, op);
}

// k behind each of the rolls of `pendings`.
template <class F>
std::vector<I> rolled(const std::vector<U>& pendings, std::int64_t history, I margin,
                      bool most_recent) {
  std::vector<StepState> state(1);
  std::vector<U> pending(1), kept(static_cast<std::size_t>(history));
  std::vector<I> k(1), result;
  for (const U one : pendings) {
    pending[0] = one;
    checked_run(Fp8Roll<F>{.state = words(state),
                           .pending = words(pending),
                           .history = view(kept, 1, history),
                           .k = words(k),
                           .margin = margin,
                           .most_recent = most_recent});
    EXPECT_EQ(pending[0], 0u);
    result.push_back(k[0]);
    ++state[0].step;
  }
  return result;
}
TEST(Fp8Roll, HasTheVectorsOfTheContract) {
  const std::vector<U> pendings = {0x3fc00000, 0, 0x43e10000, 0x7f800000, 0x3e800000, 0x00010000};
  EXPECT_EQ(rolled<e4m3>(pendings, 2, 1, false), (std::vector<I>{7, 7, -2, -2, -2, 9}));
  EXPECT_EQ(rolled<e5m2>(pendings, 2, 1, false), (std::vector<I>{14, 14, 5, 5, 5, 16}));
  EXPECT_EQ(rolled<e4m3>(pendings, 2, 1, true), (std::vector<I>{7, 7, -2, -2, 9, 39}));
  EXPECT_EQ(rolled<e5m2>(pendings, 2, 1, true), (std::vector<I>{14, 14, 5, 5, 16, 60}));
}

TEST(Fp8Roll, TakesTheLargestOfAllRanks) {
  std::vector<StepState> state(1);
  std::vector<U> pending = {0x7f000000, 0x7f000000};
  std::vector<U> of_ranks = {0x3f000000, 0, 0, 0x3fc00000, 0x3e800000, 0x3f000000};
  std::vector<U> kept(2);
  std::vector<I> k(2);
  checked_run(Fp8Roll<e4m3>{.state = words(state),
                            .pending = words(pending),
                            .of_ranks = view(of_ranks, 3, 2),
                            .history = view(kept, 2, 1),
                            .k = words(k)});
  EXPECT_EQ(kept, (std::vector<U>{0x3f000000, 0x3fc00000}));
  EXPECT_EQ(k, (std::vector<I>{9, 8}));
  EXPECT_EQ(pending, (std::vector<U>{0, 0}));
}

// All bf16 numbers, infinities and NaN too, by exponents up to the caps.
template <class F>
void expect_codes_of_the_scalar_model() {
  constexpr std::int64_t kRows = 256, kCols = 256;
  std::vector<bf16> x;
  for (std::uint32_t half = 0; half < 0x10000u; ++half)
    x.push_back(bf16{static_cast<std::uint16_t>(half)});
  std::vector<F> codes(x.size()), transposed(x.size());
  for (I k = -F::kCap; k <= F::kCap; k += k % 4 == 0 ? 1 : 3) {
    std::vector<I> exponent = {k};
    checked_run(Fp8Cast<F>{.x = view(x, kRows, kCols),
                           .k = words(exponent),
                           .codes = view(codes, kRows, kCols),
                           .transposed = view(transposed, kCols, kRows)});
    for (std::int64_t i = 0; i < kRows * kCols; ++i) {
      const std::uint8_t want = fp8_code<F>(at(x, i), k).bits;
      ASSERT_EQ(at(codes, i).bits, want) << std::hex << i << " by " << k;
      ASSERT_EQ(at(transposed, i % kCols * kRows + i / kCols).bits, want) << i << " by " << k;
    }
  }
}
TEST(Fp8Cast, TakesTheCodesOfTheScalarModel) {
  expect_codes_of_the_scalar_model<e4m3>();
  expect_codes_of_the_scalar_model<e5m2>();
}

TEST(Fp8AmaxOfRanks, IsTheLargest) {
  std::vector<U> of_ranks = {0x3f000000, 0, 0, 0x3fc00000, 0x3e800000, 0x3f000000}, amax(2);
  checked_run(Fp8AmaxOfRanks{.of_ranks = view(of_ranks, 3, 2), .amax = words(amax)});
  EXPECT_EQ(amax, (std::vector<U>{0x3f000000, 0x3fc00000}));
}

TEST(Fp8Transpose, HasEveryCodeAndNoneBehindThem) {
  std::vector<e4m3> codes(3 * 32, e4m3{0x7f}), transposed(20 * 16, e4m3{0x7f});
  for (int r = 0; r < 3; ++r) {
    for (int c = 0; c < 20; ++c)
      codes[static_cast<std::size_t>(r * 32 + c)].bits = static_cast<std::uint8_t>(32 * r + c);
  }
  checked_run(Fp8Transpose{
      .codes = view(codes, 3, 32), .transposed = view(transposed, 20, 16), .rows = 3, .cols = 20});
  for (int c = 0; c < 20; ++c) {
    for (int r = 0; r < 16; ++r)
      EXPECT_EQ(transposed[static_cast<std::size_t>(c * 16 + r)].bits, r < 3 ? 32 * r + c : 0);
  }
}

// A linear layer's operands and what the ops make of them.
struct Layer {
  std::int64_t rows, in, out, experts = 1;
  std::vector<bf16> x = {}, w = {}, dy = {};
  std::vector<I> row_document = {}, start = {}, counts = {};

  struct Words {
    std::vector<U> amax = {};
    std::vector<I> k = {};
    std::vector<float> scale = {};
  };
  Words of_x = {}, of_w = {}, of_dy = {};
  std::vector<e4m3> x8 = {}, x8t = {}, w8 = {}, w8t = {};
  std::vector<e5m2> y8 = {}, y8t = {};
  std::vector<bf16> y = {}, dx = {};
  std::vector<float> dw = {}, acc = {};
  std::vector<std::vector<float>> dw_of_sources = {};  // For each of the S / E sources.

  std::int64_t segments() const {
    return start.empty() ? 1 : static_cast<std::int64_t>(start.size());
  }
  In<I> first_rows() { return start.empty() ? Tensor<I>{} : words(start); }
  In<I> sizes() { return counts.empty() ? Tensor<I>{} : words(counts); }

  template <class F>
  void quantise(std::vector<bf16>& from, std::int64_t width, Words& made, std::vector<F>& codes,
                std::vector<F>& transposed) {
    const std::int64_t s = segments(), columns = transposed_columns(rows, s);
    made = {std::vector<U>(static_cast<std::size_t>(s), 7),
            std::vector<I>(static_cast<std::size_t>(s)),
            std::vector<float>(static_cast<std::size_t>(s))};
    codes.assign(static_cast<std::size_t>(rows * fp8_padded(width)), F{0xee});
    transposed.assign(static_cast<std::size_t>(width * columns), F{0xee});
    checked_run(Fp8ClearAmax{.amax = words(made.amax)});
    checked_run(Fp8Amax{.x = view(from, rows, width),
                        .row_document = words(row_document),
                        .start = first_rows(),
                        .rows = sizes(),
                        .amax = words(made.amax)});
    checked_run(
        Fp8Exponent<F>{.amax = words(made.amax), .k = words(made.k), .scale = words(made.scale)});
    checked_run(Fp8Cast<F>{.x = view(from, rows, width),
                           .row_document = words(row_document),
                           .start = first_rows(),
                           .rows = sizes(),
                           .k = words(made.k),
                           .codes = view(codes, rows, fp8_padded(width)),
                           .transposed = view(transposed, width, columns)});
  }
  void quantise_weight() {
    of_w = {std::vector<U>(static_cast<std::size_t>(experts)),
            std::vector<I>(static_cast<std::size_t>(experts)),
            std::vector<float>(static_cast<std::size_t>(experts))};
    w8.assign(static_cast<std::size_t>(experts * out * fp8_padded(in)), e4m3{0xee});
    w8t.assign(static_cast<std::size_t>(experts * in * fp8_padded(out)), e4m3{0xee});
    const Tensor<bf16> all = view(w, experts * out, in);
    checked_run(Fp8Amax{.x = all, .amax = words(of_w.amax)});
    checked_run(Fp8Exponent<e4m3>{
        .amax = words(of_w.amax), .k = words(of_w.k), .scale = words(of_w.scale)});
    checked_run(Fp8Cast<e4m3>{.x = all,
                              .k = words(of_w.k),
                              .codes = view(w8, experts * out, fp8_padded(in)),
                              .transposed = view(w8t, experts * in, fp8_padded(out))});
  }
  void run_all() {
    quantise(x, in, of_x, x8, x8t);
    quantise(dy, out, of_dy, y8, y8t);
    quantise_weight();
    const std::int64_t s = segments(), columns = transposed_columns(rows, s);
    y.assign(static_cast<std::size_t>(rows * out), bf16{0x7fff});
    dx.assign(static_cast<std::size_t>(rows * in), bf16{0x7fff});
    dw.assign(static_cast<std::size_t>(s * out * in), quiet_nan());
    acc.assign(dw.size(), 1.5f);
    checked_run(Fp8LinearForward{.x = view(x8, rows, fp8_padded(in)),
                                 .w = view(w8, experts * out, fp8_padded(in)),
                                 .x_scale = words(of_x.scale),
                                 .w_scale = words(of_w.scale),
                                 .row_document = words(row_document),
                                 .start = first_rows(),
                                 .rows = sizes(),
                                 .y = view(y, rows, out)});
    checked_run(Fp8LinearInputGradient{.dy = view(y8, rows, fp8_padded(out)),
                                       .w = view(w8t, experts * in, fp8_padded(out)),
                                       .dy_scale = words(of_dy.scale),
                                       .w_scale = words(of_w.scale),
                                       .row_document = words(row_document),
                                       .start = first_rows(),
                                       .rows = sizes(),
                                       .dx = view(dx, rows, in)});
    Fp8LinearWeightGradient gradient{.dy = view(y8t, out, columns),
                                     .x = view(x8t, in, columns),
                                     .dy_scale = words(of_dy.scale),
                                     .x_scale = words(of_x.scale),
                                     .start = first_rows(),
                                     .rows = sizes(),
                                     .dw = view(dw, s * out, in)};
    checked_run(gradient);
    gradient.dw = {};
    gradient.acc = view(acc, s * out, in);
    checked_run(gradient);
    gradient.acc = {};
    gradient.sources = static_cast<I>(s / experts);
    dw_of_sources.assign(static_cast<std::size_t>(gradient.sources), {});
    for (; gradient.source < gradient.sources; ++gradient.source) {
      std::vector<float>& of = at(dw_of_sources, gradient.source);
      of.assign(static_cast<std::size_t>(experts * out * in), quiet_nan());
      gradient.dw = view(of, experts * out, in);
      checked_run(gradient);
    }
  }
};
std::vector<bf16> bf16_words(const std::vector<std::uint16_t>& all) {
  std::vector<bf16> x;
  for (const std::uint16_t one : all) x.push_back(bf16{one});
  return x;
}
template <class T>
std::vector<std::uint32_t> bits_of(const std::vector<T>& x) {
  std::vector<std::uint32_t> all;
  for (const T one : x) {
    if constexpr (std::is_same_v<T, float>) {
      all.push_back(bits(one));
    } else {
      all.push_back(one.bits);
    }
  }
  return all;
}

// The row of no document holds NaN, which may reach nothing.
TEST(Fp8Ops, HaveTheLayerOfTheContract) {
  Layer layer{.rows = 3,
              .in = 2,
              .out = 2,
              .x = bf16_words({0x3fc0, 0xbe80, 0x7fc0, 0xff80, 0x4040, 0x3c00}),
              .w = bf16_words({0x3f00, 0xc000, 0x3cf6, 0x3f80}),
              .dy = bf16_words({0x3a83, 0xb727, 0x7fff, 0x7f80, 0x2edc, 0x3983}),
              .row_document = {0, -1, 1}};
  layer.run_all();
  EXPECT_EQ(layer.of_x.k, std::vector<I>{7});
  EXPECT_EQ(layer.of_w.k, std::vector<I>{7});
  EXPECT_EQ(layer.of_dy.k, std::vector<I>{25});
  EXPECT_EQ(layer.of_dy.scale, std::vector<float>{0x1p-25f});
  const auto row = [](const auto& codes, std::int64_t i, std::int64_t n) {
    std::vector<std::uint32_t> all;
    for (std::int64_t c = 0; c < 16; ++c) {
      if (c < n || at(codes, i * 16 + c).bits != 0) all.push_back(at(codes, i * 16 + c).bits);
    }
    return all;
  };
  using Row = std::vector<std::uint32_t>;
  EXPECT_EQ(row(layer.x8, 0, 2), (Row{0x74, 0xe0}));
  EXPECT_EQ(row(layer.x8, 1, 2), (Row{0, 0}));
  EXPECT_EQ(row(layer.x8, 2, 2), (Row{0x7c, 0x38}));
  EXPECT_EQ(row(layer.x8t, 0, 3), (Row{0x74, 0, 0x7c}));
  EXPECT_EQ(row(layer.x8t, 1, 3), (Row{0xe0, 0, 0x38}));
  EXPECT_EQ(row(layer.w8, 1, 2), (Row{0x47, 0x70}));
  EXPECT_EQ(row(layer.w8t, 1, 2), (Row{0xf8, 0x70}));
  EXPECT_EQ(row(layer.y8, 0, 2), (Row{0x78, 0xdd}));
  EXPECT_EQ(row(layer.y8t, 0, 3), (Row{0x78, 0, 0x1b}));
  EXPECT_EQ(bits_of(layer.y), (Row{0x3fa0, 0xbe53, 0, 0, 0x3fbe, 0x3dc4}));
  EXPECT_EQ(bits_of(layer.dx), (Row{0x3a00, 0xbb01, 0, 0, 0x36f0, 0x3980}));
  EXPECT_EQ(bits_of(layer.dw), (Row{0x3ac00000, 0xb9800000, 0x3a3c4000, 0x36900000}));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(bits(layer.acc[i]), bits(add(1.5f, layer.dw[i])));
}

// dW of the contract, in one buffer: segments 0..32 and 33..199, one segment, rows not in use.
Layer gradient_layer() {
  Layer layer{.rows = 200, .in = 1, .out = 1};
  for (int i = 0; i < 200; ++i) {
    const auto x = static_cast<float>((53 * i + 29) % 127 - 63);
    const auto dy = static_cast<float>((71 * i + 3) % 123 - 61);
    layer.x.push_back(st<bf16>(mul(x, fp8_power(-(i % 7)))));
    layer.dy.push_back(st<bf16>(mul(dy, fp8_power(i % 11 - 12))));
    layer.row_document.push_back(0);
  }
  layer.w = bf16_words({0x3f80});
  return layer;
}
TEST(Fp8Ops, HaveTheWeightGradientsOfTheContract) {
  Layer two = gradient_layer();
  two.start = {0, 33}, two.counts = {33, 167};
  two.run_all();
  EXPECT_EQ(two.of_x.k, (std::vector<I>{2, 2}));
  EXPECT_EQ(two.of_dy.k, (std::vector<I>{12, 11}));
  EXPECT_EQ(bits_of(two.dw), (std::vector<std::uint32_t>{0xc4353000, 0x44460600}));
  EXPECT_EQ(bits(add(two.dw[0], two.dw[1])), 0x4286b000u);
  Layer one = gradient_layer();
  one.run_all();
  EXPECT_EQ(bits(one.dw[0]), 0x4287a000u);
  Layer thirds = gradient_layer();
  for (std::size_t i = 0; i < 200; i += 3) thirds.row_document[i] = -1;
  thirds.run_all();
  EXPECT_EQ(bits(thirds.dw[0]), 0x44467200u);
}

// Segments of a buffer give what each gives by itself, wherever it lies; one has no rows, and two
// belong to each expert.
TEST(Fp8Ops, TreatEachSegmentAsAMatrixOfItsOwn) {
  Drawn draw(3);
  Layer all{.rows = 300, .in = 24, .out = 40, .experts = 2};
  all.start = {0, 5, 145, 145}, all.counts = {5, 137, 0, 151};
  const auto drawn = [&](std::int64_t count) {
    std::vector<bf16> x;
    for (std::int64_t e = 0; e < count; ++e)
      x.push_back(
          bf16{static_cast<std::uint16_t>(draw.below(2) << 15 | (0x3a00 + draw.below(0x700)))});
    return x;
  };
  all.x = drawn(300 * 24), all.dy = drawn(300 * 40), all.w = drawn(2 * 40 * 24);
  all.row_document.assign(300, -1);
  for (std::size_t s = 0; s < 4; ++s) {
    for (I i = 0; i < all.counts[s]; ++i) at(all.row_document, all.start[s] + i) = i;
  }
  all.run_all();
  for (std::int64_t s = 0; s < 4; ++s) {
    const I first = at(all.start, s), count = at(all.counts, s);
    if (count == 0) {
      EXPECT_EQ(at(all.of_x.k, s), 0);
      for (std::int64_t e = 0; e < 40 * 24; ++e) ASSERT_EQ(bits(at(all.dw, s * 40 * 24 + e)), 0u);
      continue;
    }
    Layer one{.rows = count, .in = 24, .out = 40};
    const auto part = [](const std::vector<bf16>& x, std::int64_t from, std::int64_t size) {
      return std::vector<bf16>(x.begin() + from, x.begin() + from + size);
    };
    one.x = part(all.x, first * 24, count * 24), one.dy = part(all.dy, first * 40, count * 40);
    one.w = part(all.w, s / 2 * 40 * 24, 40 * 24);
    one.row_document.assign(static_cast<std::size_t>(count), 0);
    one.run_all();
    EXPECT_EQ(at(all.of_x.k, s), one.of_x.k[0]);
    EXPECT_EQ(at(all.of_dy.amax, s), one.of_dy.amax[0]);
    EXPECT_EQ(bits_of(part(all.y, first * 40, count * 40)), bits_of(one.y)) << s;
    EXPECT_EQ(bits_of(part(all.dx, first * 24, count * 24)), bits_of(one.dx)) << s;
    for (std::int64_t e = 0; e < 40 * 24; ++e)
      ASSERT_EQ(bits(at(all.dw, s * 40 * 24 + e)), bits(at(one.dw, e))) << s << ", " << e;
  }
  for (std::int64_t r = 0; r < 300; ++r) {
    if (at(all.row_document, r) >= 0) continue;
    for (std::int64_t c = 0; c < 40; ++c) ASSERT_EQ(at(all.y, r * 40 + c).bits, 0);
    for (std::int64_t c = 0; c < 24; ++c) ASSERT_EQ(at(all.dx, r * 24 + c).bits, 0);
  }
}

// The gradients of one source are those of its segments, one expert below the other.
TEST(Fp8Ops, HaveTheWeightGradientsOfEachSource) {
  Layer two = gradient_layer();
  two.start = {0, 33}, two.counts = {33, 167};
  two.run_all();
  EXPECT_EQ(bits_of(two.dw_of_sources.at(0)), (std::vector<std::uint32_t>{0xc4353000}));
  EXPECT_EQ(bits_of(two.dw_of_sources.at(1)), (std::vector<std::uint32_t>{0x44460600}));
  Layer four = gradient_layer();
  four.experts = 2;
  four.w = bf16_words({0x3f80, 0x3f80});
  four.start = {0, 33, 80, 81}, four.counts = {33, 47, 1, 119};
  four.run_all();
  ASSERT_EQ(four.dw_of_sources.size(), 2u);
  for (std::size_t s = 0; s < 4; ++s)
    EXPECT_EQ(bits(four.dw_of_sources.at(s % 2).at(s / 2)), bits(four.dw.at(s))) << s;
}

// Words accumulate, and the exponents of recipe delayed come from what an expert holds.
TEST(Fp8Exponent, TakesTheMaximumIntoPendingAndRepeatsWhatIsHeld) {
  std::vector<U> amax = {0x3f800000, 0x40000000, 0x3e000000, 0}, pending = {0x3fc00000, 0x3f000000};
  std::vector<I> held = {3, -61}, k(4);
  std::vector<float> scale(4);
  checked_run(Fp8Exponent<e5m2>{.amax = words(amax),
                                .held = words(held),
                                .pending = words(pending),
                                .k = words(k),
                                .scale = words(scale)});
  EXPECT_EQ(k, (std::vector<I>{3, 3, -61, -61}));
  EXPECT_EQ(scale, (std::vector<float>{0x1p-3f, 0x1p-3f, 0x1p+61f, 0x1p+61f}));
  EXPECT_EQ(pending, (std::vector<U>{0x40000000, 0x3f000000}));
  checked_run(Fp8Exponent<e5m2>{.held = words(held), .k = words(k), .scale = words(scale)});
  EXPECT_EQ(k, (std::vector<I>{3, 3, -61, -61}));
}
TEST(Fp8Amax, ComposesAndKnowsNoSign) {
  std::vector<bf16> x = bf16_words({0x3f80, 0xc000, 0x8000, 0x4300});
  std::vector<I> row_document = {0, -1};
  std::vector<U> amax = {0x3f000000};
  checked_run(
      Fp8Amax{.x = view(x, 2, 2), .row_document = words(row_document), .amax = words(amax)});
  EXPECT_EQ(amax[0], 0x40000000u);
  amax = {0x7fc00000};
  checked_run(Fp8Amax{.x = view(x, 2, 2), .amax = words(amax)});
  EXPECT_EQ(amax[0], 0x7fc00000u);
}

}  // namespace
}  // namespace lockstep
