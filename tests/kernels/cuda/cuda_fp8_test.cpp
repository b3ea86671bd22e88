// The products of fp8 on a GPU have the bits of the host: the vectors of arithmetic.md 5.6, every
// family of codes, with infinities and NaN, and chains of many runs.
#include "kernels/core/fp8_families.h"
#include "kernels/ops/fp8.h"
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

}  // namespace
}  // namespace lockstep
