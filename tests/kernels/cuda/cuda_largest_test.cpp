// The largest pack a scenario may ask for, 1,048,576 rows, is one that a GPU's grids still hold.
#include "kernels/ops/conv.h"
#include "kernels/submission/ops.h"
#include "tests/kernels/cuda/on_gpu.h"

namespace lockstep {
namespace {

template <class T>
Tensor<T> place(OpMemory& memory, const std::vector<T>& x, std::int64_t rows) {
  std::vector<std::byte> bytes(x.size() * sizeof(T));
  std::memcpy(bytes.data(), x.data(), bytes.size());
  return tensor(static_cast<T*>(memory.place(bytes)), rows,
                static_cast<std::int64_t>(x.size()) / rows);
}

// Operands of a convolution over eight channels, in documents of `document` rows.
struct Rows {
  OpMemory& memory;
  std::int64_t rows, document;

  static constexpr std::int64_t kChannels = 8;
  Tensor<bf16> values(std::int64_t factor) const {
    std::vector<bf16> x;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t c = 0; c < kChannels; ++c) {
        x.push_back(st<bf16>(static_cast<float>((factor * i + c) % 97 - 48) * 0x1p-5f));
      }
    }
    return place(memory, x, rows);
  }
  template <class T>
  Tensor<T> out(std::int64_t of, T nan) const {
    return place(memory, std::vector<T>(static_cast<std::size_t>(of * kChannels), nan), of);
  }
  Tensor<float> weight() const {
    std::vector<float> x;
    for (int k = 0; k < 4 * kChannels; ++k) x.push_back(static_cast<float>(k % 7 - 3) * 0.5f);
    return place(memory, x, kChannels);
  }
  Tensor<float> bias() const {
    return place<float>(memory, {0.5f, -0.25f, 0, 1, -2, 0.125f, 3, -1}, 1);
  }
  template <class F>
  Tensor<std::int32_t> of_rows(F f) const {
    std::vector<std::int32_t> x;
    for (std::int64_t i = 0; i < rows; ++i) x.push_back(static_cast<std::int32_t>(f(i)));
    return place(memory, x, 1);
  }
  Tensor<std::int32_t> documents() const {
    return of_rows([&](std::int64_t i) { return i / document; });
  }
  Tensor<std::int32_t> positions() const {
    return of_rows([&](std::int64_t i) { return i % document; });
  }
};

TEST(LargestPackOnAGpu, ConvolutionHasTheBytesOfTheHost) {
  expect_same_bytes("conv", at_once, [](OpMemory& memory) {
    const Rows rows{memory, 1 << 20, 1 << 16};
    return Submission(ConvForward<bf16>{.x = rows.values(5),
                                        .weight = rows.weight(),
                                        .bias = rows.bias(),
                                        .row_document = rows.documents(),
                                        .row_position = rows.positions(),
                                        .y = rows.out(rows.rows, bf16{0x7fff})});
  });
}

// So many row blocks that one walk takes three of them; the last walk is shorter.
TEST(LargePackOnAGpu, ConvolutionBackwardHasTheBytesOfTheHost) {
  expect_same_bytes("conv backward", at_once, [](OpMemory& memory) {
    const Rows rows{memory, 70'001, 333};
    return Submission(ConvBackward<bf16>{
        .x = rows.values(5),
        .weight = rows.weight(),
        .bias = rows.bias(),
        .dy = rows.values(11),
        .row_document = rows.documents(),
        .row_position = rows.positions(),
        .dpre = rows.out(rows.rows, quiet_nan()),
        .dx = rows.out(rows.rows, bf16{0x7fff}),
        .dweight =
            place(memory, std::vector<float>(4 * Rows::kChannels, quiet_nan()), Rows::kChannels),
        .dbias = rows.out(1, quiet_nan())});
  });
}

}  // namespace
}  // namespace lockstep
