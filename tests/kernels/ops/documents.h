// Document isolation: every document of a generated case run alone, in a pack of its own, must give
// the same bits.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <vector>

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"

namespace lockstep {

// The memory of one document that runs alone.
class Alone {
 public:
  Alone(std::int64_t start, std::int64_t length) : start_(start), length_(length) {
    boundaries_[1] = static_cast<std::int32_t>(length);
    positions_.resize(static_cast<std::size_t>(length));
    documents_.resize(positions_.size());
    for (std::int64_t i = 0; i < length; ++i)
      positions_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
  }
  std::int64_t length() const { return length_; }
  template <class T, Access kAccess>
  In<T> rows_of(const Operand<T, kAccess>& x) const {
    return {x.row(start_), length_, x.cols, x.pitch};
  }
  template <class T, Access kAccess>
  Tensor<T> make(const Operand<T, kAccess>& x) const {
    return make<T>(length_, x.cols);
  }
  // Starts as NaN, in either numerics.
  template <class T = float>
  Tensor<T> make(std::int64_t rows, std::int64_t cols) const {
    memory_.emplace_back(static_cast<std::size_t>(rows * cols) * sizeof(T), std::byte{0xff});
    return tensor(reinterpret_cast<T*>(memory_.back().data()), rows, cols);
  }
  template <class Op>
  void describe(Op& op) const {
    if constexpr (requires { op.cu_seqlens; }) {
      op.cu_seqlens = op.cu_seqlens_padded = tensor(boundaries_, 1, 2);
    }
    op.row_document = tensor(documents_.data(), 1, length_);
    if constexpr (requires { op.row_position; })
      op.row_position = tensor(positions_.data(), 1, length_);
    if constexpr (requires { op.chunk_start; }) describe_chunks(op);
  }
  template <class T, Access kAccess>
  void expect_same(const Operand<T, kAccess>& pack, Tensor<T> alone) const {
    for (std::int64_t i = 0; i < length_; ++i) {
      for (std::int64_t c = 0; c < alone.cols; ++c) {
        ASSERT_EQ(bits(load(pack.row(start_ + i)[c])), bits(load(alone.data[i * alone.pitch + c])))
            << i << ", " << c;
      }
    }
  }

 private:
  template <class Op>
  void describe_chunks(Op& op) const {
    for (std::int64_t p = 0; p < length_; p += op.chunk) {
      chunk_document_.push_back(0);
      chunk_start_.push_back(static_cast<std::int32_t>(p));
      chunk_rows_.push_back(
          static_cast<std::int32_t>(std::min<std::int64_t>(op.chunk, length_ - p)));
    }
    const auto chunks = static_cast<std::int64_t>(chunk_rows_.size());
    op.chunk_document = tensor(chunk_document_.data(), 1, chunks);
    op.chunk_start = tensor(chunk_start_.data(), 1, chunks);
    op.chunk_rows = tensor(chunk_rows_.data(), 1, chunks);
    const std::int64_t width = op.states.cols;
    op.states = make(chunks, width);
    if constexpr (requires { op.dstates; }) op.dstates = make(chunks, width);
  }

  std::int64_t start_, length_;
  mutable std::int32_t boundaries_[2] = {0, 0};
  mutable std::vector<std::int32_t> documents_, positions_, chunk_document_, chunk_start_,
      chunk_rows_;
  mutable std::deque<std::vector<std::byte>> memory_;
};

// Calls check(alone) for every document, found by its rows.
template <class Op, class Check>
void for_documents(const Op& op, const Check& check) {
  const std::int64_t rows = op.row_document.cols;
  for (std::int64_t i = 0; i < rows;) {
    std::int64_t end = i + 1;
    while (end < rows && op.row_document.data[end] == op.row_document.data[i]) ++end;
    if (op.row_document.data[i] >= 0) check(Alone(i, end - i));
    i = end;
  }
}

}  // namespace lockstep
