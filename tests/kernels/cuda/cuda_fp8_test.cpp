// The products of fp8 on a GPU have the bits of the host: the vectors of arithmetic.md 5.6, every
// family of codes, with infinities and NaN, and chains of many runs; by our own kernel, and by the
// library where products are planned.
#include "kernels/core/fp8_families.h"
#include "kernels/cuda/gemm/fp8_tile_columns.h"
#include "kernels/ops/fp8.h"
#include "kernels/ops/linear.h"
#include "tests/kernels/cuda/on_gpu.h"

namespace lockstep {
namespace {

template <class T>
Tensor<T> placed(OpMemory& memory, std::int64_t rows, std::int64_t cols,
                 const std::vector<T>& contents) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows * cols) * sizeof(T), std::byte{0xff});
  if (!contents.empty()) std::memcpy(bytes.data(), contents.data(), bytes.size());
  return tensor(static_cast<T*>(memory.place(bytes)), rows, cols);
}
// One row each, the dot of two vectors, in fp32 where the product is a weight gradient.
template <class A>
Submission product_of(OpMemory& memory, std::int64_t m, std::int64_t n, std::int64_t k,
                      const std::vector<A>& a, const std::vector<e4m3>& b) {
  const Tensor<A> left = placed(memory, m, k, a);
  const Tensor<e4m3> right = placed(memory, n, k, b);
  const Tensor<float> one = placed(memory, 1, 1, std::vector<float>{1.0f});
  if constexpr (std::is_same_v<A, e4m3>) {
    return Submission(Fp8LinearForward{.x = left,
                                       .w = right,
                                       .x_scale = one,
                                       .w_scale = one,
                                       .y = placed<bf16>(memory, m, n, {})});
  } else {
    return Submission(Fp8LinearWeightGradient{.dy = left,
                                              .x = right,
                                              .dy_scale = one,
                                              .x_scale = one,
                                              .dw = placed<float>(memory, m, n, {})});
  }
}
template <class A>
void expect_every_family(std::int64_t m, std::int64_t n, std::int64_t k) {
  for (const Fp8Family& f : kFp8Families) {
    Drawn draw(static_cast<std::uint64_t>(m * 31 + k));
    std::vector<A> a(static_cast<std::size_t>(m * k));
    std::vector<e4m3> b(static_cast<std::size_t>(n * k));
    for (std::int64_t i = 0; i < m; ++i) draw_code_row(draw, f, 1, i, k, false, a.data() + i * k);
    for (std::int64_t j = 0; j < n; ++j) draw_code_row(draw, f, 2, j, k, true, b.data() + j * k);
    expect_same_bytes(f.name, at_once,
                      [&](OpMemory& memory) { return product_of(memory, m, n, k, a, b); });
  }
}

TEST(Fp8OnAGpu, HasTheVectorsOfTheContract) {
  std::vector<e4m3> a(288), b(288);
  std::vector<e5m2> e(288);
  for (std::size_t k = 0; k < 288; ++k) {
    a[k].bits = static_cast<std::uint8_t>((37 * k + 11) % 127 + 128 * (5 * k % 3 == 0));
    b[k].bits = static_cast<std::uint8_t>((53 * k + 29) % 127 + 128 * (7 * k % 4 == 1));
    e[k].bits = static_cast<std::uint8_t>((71 * k + 3) % 124 + 128 * (k % 5 == 2));
  }
  expect_same_bytes("a.b", at_once,
                    [&](OpMemory& memory) { return product_of(memory, 1, 1, 288, a, b); });
  expect_same_bytes("e.b", at_once,
                    [&](OpMemory& memory) { return product_of(memory, 1, 1, 288, e, b); });
}
TEST(Fp8OnAGpu, HasTheBitsOfTheHostForEveryFamily) {
  expect_every_family<e4m3>(130, 70, 288);
  expect_every_family<e5m2>(130, 70, 288);
  expect_every_family<e4m3>(1, 300, 16);
  expect_every_family<e5m2>(300, 1, 144);
}
TEST(Fp8OnAGpu, HasTheBitsOfTheHostOverManyRuns) {
  expect_every_family<e4m3>(64, 128, 4096 + 48);
  expect_every_family<e5m2>(128, 64, 4096 + 48);
}

// ---- Products that the library computes ---------------------------------------------------------

enum class Kind : std::uint8_t { forward, input_gradient, weight_gradient, accumulate };
struct Sizes {
  std::int64_t m, n, k;
};

template <class F>
Tensor<F> drawn_codes(OpMemory& memory, const Fp8Family& f, std::uint64_t seed, std::int64_t rows,
                      std::int64_t k) {
  Drawn draw(seed);
  std::vector<F> codes(static_cast<std::size_t>(rows * k));
  for (std::int64_t i = 0; i < rows; ++i)
    draw_code_row(draw, f, seed, i, k, seed == 2, codes.data() + i * k);
  return placed(memory, rows, k, codes);
}
Tensor<float> scale_of(OpMemory& memory, std::int32_t exponent) {
  return placed(memory, 1, 1, std::vector<float>{fp8_power(-exponent)});
}

// Every fifth row is not in use: its codes are zeros.
Submission product(OpMemory& memory, Kind kind, const Sizes& s, const Fp8Family& f) {
  const Tensor<float> a_scale = scale_of(memory, 9), b_scale = scale_of(memory, -4);
  // The library asks for a multiple of 256 bytes, which OpMemory does not give. The host needs
  // none.
  static void* const aligned = gpu().allocate(kProductWorkspace);
  const Tensor<std::uint8_t> workspace =
      tensor(static_cast<std::uint8_t*>(aligned), 1, kProductWorkspace);
  const Tensor<e4m3> b = drawn_codes<e4m3>(memory, f, 2, s.n, s.k);
  if (kind >= Kind::weight_gradient) {
    Fp8LinearWeightGradient op{.dy = drawn_codes<e5m2>(memory, f, 1, s.m, s.k),
                               .x = b,
                               .dy_scale = a_scale,
                               .x_scale = b_scale,
                               .workspace = workspace};
    std::vector<float> before(static_cast<std::size_t>(s.m * s.n));
    Drawn draw(3);
    for (float& x : before) x = 0x1p-12f * static_cast<float>(draw.below(1 << 20) - (1 << 19));
    const Tensor<float> result = placed(memory, s.m, s.n, before);
    if (kind == Kind::accumulate) {
      op.acc = result;
    } else {
      op.dw = result;
    }
    return Submission(op);
  }
  std::vector<std::int32_t> document;
  for (std::int64_t i = 0; i < s.m; ++i) document.push_back(i % 5 == 4 ? -1 : 0);
  const auto left = [&]<class F>(F) {
    Tensor<F> a = drawn_codes<F>(memory, f, 1, s.m, s.k);
    return a;
  };
  const Tensor<std::int32_t> row_document = placed(memory, 1, s.m, document);
  const Tensor<bf16> result = placed<bf16>(memory, s.m, s.n, {});
  if (kind == Kind::forward) {
    return Submission(Fp8LinearForward{.x = left(e4m3{}),
                                       .w = b,
                                       .x_scale = a_scale,
                                       .w_scale = b_scale,
                                       .row_document = row_document,
                                       .y = result,
                                       .workspace = workspace});
  }
  return Submission(Fp8LinearInputGradient{.dy = left(e5m2{}),
                                           .w = b,
                                           .dy_scale = a_scale,
                                           .w_scale = b_scale,
                                           .row_document = row_document,
                                           .dx = result,
                                           .workspace = workspace});
}

void planned_at_once(BackendStream* stream, const Submission& submission) {
  gpu().plan(submission);
  const std::int64_t by_us = gpu().plans().own_calls;
  at_once(stream, submission);
  EXPECT_EQ(gpu().plans().own_calls, by_us) << "no algorithm of the library was admitted";
}

// Products that nobody planned are done by our own kernel.
class Fp8OwnProducts : public testing::TestWithParam<Kind> {};

TEST_P(Fp8OwnProducts, HaveTheBitsOfTheHostInWholeTilesAndAtEdges) {
  for (const Fp8Family& f : kFp8Families) {
    if (f.specials != 0) continue;  // Their sums are met above, and an accumulator has none.
    for (const Sizes& s : {Sizes{300, 396, 288}, Sizes{260, 520, 1168}, Sizes{140, 203, 144}}) {
      expect_same_bytes(f.name, at_once,
                        [&](OpMemory& memory) { return product(memory, GetParam(), s, f); });
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Kinds, Fp8OwnProducts,
                         testing::Values(Kind::forward, Kind::input_gradient, Kind::weight_gradient,
                                         Kind::accumulate));

// Gradients of weights that H100 and H200 compute in tiles of 256 columns; those above are done in
// tiles of 192.
TEST(Fp8OnAGpu, HasTheBitsOfTheHostInWideTilesOfWeightGradients) {
  constexpr Sizes kWide{5600, 700, 272};
  static_assert(fp8_tile_columns(1, kWide.m, kWide.n, 132) == kFp8TileColumns);
  static_assert(fp8_tile_columns(1, 300, 396, 132) == kFp8NarrowTileColumns);
  for (const Kind kind : {Kind::weight_gradient, Kind::accumulate}) {
    for (const Fp8Family& f : kFp8Families) {
      if (f.specials != 0 || f.spread < 5) continue;
      expect_same_bytes(f.name, at_once,
                        [&](OpMemory& memory) { return product(memory, kind, kWide, f); });
    }
  }
}

class Fp8LibraryProducts : public testing::TestWithParam<Kind> {};

TEST_P(Fp8LibraryProducts, HaveTheBitsOfTheHost) {
  for (const Sizes& s : {Sizes{256, 128, 1152}, Sizes{128, 384, 96}, Sizes{512, 256, 2048 + 16}}) {
    for (const Fp8Family& f : kFp8Families) {
      if (f.specials != 0) continue;  // The library's NaN may have other bits: see below.
      expect_same_bytes(f.name, planned_at_once,
                        [&](OpMemory& memory) { return product(memory, GetParam(), s, f); });
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Kinds, Fp8LibraryProducts,
                         testing::Values(Kind::forward, Kind::input_gradient, Kind::weight_gradient,
                                         Kind::accumulate));

}  // namespace
}  // namespace lockstep
