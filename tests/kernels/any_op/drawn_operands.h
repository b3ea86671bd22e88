// The operands of a pack of given documents, drawn and placed in any memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/core/contract.h"
#include "tests/kernels/any_op/any_op.h"

namespace lockstep {

class DrawnOperands {
 protected:
  // `gap` rows of no document follow every document.
  DrawnOperands(const std::vector<std::int32_t>& lengths, std::int32_t gap, OpMemory& memory)
      : memory_(memory) {
    for (const std::int32_t length : lengths) {
      const auto number = static_cast<std::int32_t>(cu_seqlens_.size() - 1);
      document_.insert(document_.end(), static_cast<std::size_t>(length), number);
      document_.insert(document_.end(), static_cast<std::size_t>(gap), -1);
      cu_seqlens_.push_back(cu_seqlens_.back() + length);
      cu_seqlens_padded_.push_back(static_cast<std::int32_t>(document_.size()));
    }
    rows_ = static_cast<std::int64_t>(document_.size());
  }
  // About normal.
  float next() {
    float sum = -2.0f;
    for (int k = 0; k < 4; ++k) sum += static_cast<float>(mix64(draws_++) >> 40) * 0x1p-24f;
    return 1.7f * sum;
  }
  // value(column) in rows of documents; all others are NaN.
  template <class Value>
  Tensor<bf16> drawn(std::int64_t cols, std::int32_t offset, const Value& value) {
    std::vector<bf16> x;
    for (const std::int32_t document : document_) {
      for (std::int64_t c = 0; c < cols; ++c)
        x.push_back(document < 0 ? bf16{0x7fff} : st<bf16>(value(c)));
    }
    return place(x, rows_, cols, offset);
  }
  Tensor<std::int32_t> integers(const std::vector<std::int32_t>& x) {
    return place(x, 1, static_cast<std::int64_t>(x.size()));
  }
  template <class T>
  Tensor<T> undefined(std::int64_t rows, std::int64_t cols) {
    const std::vector<std::byte> bytes(static_cast<std::size_t>(rows * cols) * sizeof(T),
                                       std::byte{0xff});
    return tensor(static_cast<T*>(memory_.place(bytes)), rows, cols);
  }
  // `offset` undefined elements lie before the first.
  template <class T>
  Tensor<T> place(const std::vector<T>& x, std::int64_t rows, std::int64_t cols,
                  std::int32_t offset = 0) {
    std::vector<std::byte> bytes((x.size() + static_cast<std::size_t>(offset)) * sizeof(T),
                                 std::byte{0xff});
    if (!x.empty())
      std::memcpy(bytes.data() + static_cast<std::size_t>(offset) * sizeof(T), x.data(),
                  x.size() * sizeof(T));
    return tensor(static_cast<T*>(memory_.place(bytes)) + offset, rows, cols);
  }

  std::vector<std::int32_t> cu_seqlens_{0}, cu_seqlens_padded_{0};
  std::vector<std::int32_t> document_;  // By row; -1 for none.
  std::int64_t rows_ = 0;

 private:
  OpMemory& memory_;
  std::uint64_t draws_ = 1;
};

}  // namespace lockstep
