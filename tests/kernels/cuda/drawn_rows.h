// Operands as models have them: whole rows, at multiples of 16 bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/core/contract.h"
#include "kernels/core/step_state.h"
#include "tests/kernels/any_op/any_op.h"

namespace lockstep {

// Operands in rows without gaps, at multiples of 16 bytes.
class Operands {
 public:
  Operands(OpMemory& memory, std::int64_t rows, std::uint64_t seed)
      : memory_(memory), rows_(rows), state_(seed) {}

  template <class T>
  Tensor<T> values(std::int64_t rows, std::int64_t cols, float low, float high) {
    std::vector<T> x;
    for (std::int64_t k = 0; k < rows * cols; ++k)
      x.push_back(st<T>(low + (high - low) * uniform(word())));
    return place(rows, cols, x);
  }
  template <class T>
  Tensor<T> out(std::int64_t rows, std::int64_t cols) {
    return place(rows, cols,
                 std::vector<T>(static_cast<std::size_t>(rows * cols), st<T>(quiet_nan())));
  }
  // Documents of 140, 7 and 128 rows with gaps of 3 and 1 behind the first two, the rest of none.
  Tensor<std::int32_t> documents() {
    return rows_of([](std::int64_t i) {
      return i < 140 ? 0 : i < 143 ? -1 : i < 150 ? 1 : i < 151 || i >= 279 ? -1 : 2;
    });
  }
  Tensor<std::int32_t> positions() {
    return rows_of([](std::int64_t i) {
      return i < 140 ? i : i < 143 ? 0 : i < 150 ? i - 143 : i < 279 ? i - 151 : 0;
    });
  }
  template <class F>
  Tensor<std::int32_t> rows_of(F f) {
    return words<std::int32_t>(rows_, f);
  }
  // Integers made of their indices.
  template <class T = std::uint32_t, class F>
  Tensor<T> words(std::int64_t count, F f) {
    std::vector<T> x;
    for (std::int64_t i = 0; i < count; ++i) x.push_back(static_cast<T>(f(i)));
    return place(1, count, x);
  }
  template <class T = std::uint32_t>
  Tensor<T> words(std::int64_t count) {
    return words<T>(count, [](std::int64_t) { return 3; });
  }
  Tensor<StepState> step() {
    return place(1, 1,
                 std::vector<StepState>{{.seed_low = word(),
                                         .step = 3,
                                         .inverse_targets = 0.013f,
                                         .learning_rate = 0.01f,
                                         .bias_correction1 = 1.5f,
                                         .bias_correction2 = 1.2f}});
  }

 private:
  std::uint32_t word() {
    return static_cast<std::uint32_t>(mix64(state_ += 0x9E3779B97F4A7C15u) >> 32);
  }
  template <class T>
  Tensor<T> place(std::int64_t rows, std::int64_t cols, const std::vector<T>& x) {
    std::vector<std::byte> bytes(x.size() * sizeof(T));
    std::memcpy(bytes.data(), x.data(), bytes.size());
    return tensor(static_cast<T*>(memory_.place(bytes)), rows, cols);
  }
  OpMemory& memory_;
  std::int64_t rows_;
  std::uint64_t state_;
};

}  // namespace lockstep
