// The largest pack a scenario may ask for, 1,048,576 rows, is one that a GPU's grids still hold.
#include "kernels/conv.h"
#include "kernels/ops.h"
#include "tests/kernels/on_gpu.h"

namespace lockstep {
namespace {

template <class T>
Tensor<T> place(OpMemory& memory, const std::vector<T>& x, std::int64_t rows) {
  std::vector<std::byte> bytes(x.size() * sizeof(T));
  std::memcpy(bytes.data(), x.data(), bytes.size());
  return tensor(static_cast<T*>(memory.place(bytes)), rows, static_cast<std::int64_t>(x.size()) / rows);
}

TEST(LargestPackOnAGpu, ConvolutionHasTheBytesOfTheHost) {
  constexpr std::int64_t kRows = 1 << 20, kChannels = 4, kDocument = 1 << 16;
  expect_same_bytes("conv", at_once, [](OpMemory& memory) {
    std::vector<bf16> x;
    std::vector<std::int32_t> document, position;
    for (std::int64_t i = 0; i < kRows; ++i) {
      for (std::int64_t c = 0; c < kChannels; ++c)
        x.push_back(st<bf16>(static_cast<float>((5 * i + c) % 97) * 0x1p-5f));
      document.push_back(static_cast<std::int32_t>(i / kDocument));
      position.push_back(static_cast<std::int32_t>(i % kDocument));
    }
    return Submission(ConvForward<bf16>{
        .x = place(memory, x, kRows),
        .weight = place<float>(memory, {1, -2, 3, 0.5f, -1, 2, 0.25f, 1, 1, 1, 0, -1, 2, 0, -3, 1}, kChannels),
        .bias = place<float>(memory, {0.5f, -0.25f, 0, 1}, 1),
        .row_document = place(memory, document, 1),
        .row_position = place(memory, position, 1),
        .y = place(memory, std::vector<bf16>(x.size(), bf16{0x7fff}), kRows)});
  });
}

}  // namespace
}  // namespace lockstep
