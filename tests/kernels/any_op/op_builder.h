// The sources that the generator of ops draws from: sizes, contents, packs of documents and
// targets.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <initializer_list>

#include "kernels/core/require.h"
#include "kernels/moe/router.h"
#include "kernels/ops/dropout.h"
#include "kernels/ops/pack_metadata.h"
#include "tests/kernels/any_op/any_op.h"

namespace lockstep {

class DrawnPack;

// Numbers as an operand of type T holds them.
template <class T>
std::vector<T> stored(const std::vector<float>& numbers) {
  std::vector<T> x;
  x.reserve(numbers.size());
  for (const float v : numbers) x.push_back(st<T>(v));
  return x;
}

class OpBuilder {
 public:
  OpBuilder(std::uint64_t seed, OpMemory& memory, Fill fill)
      : state_(seed), aligned_(mix64(seed + 1) % 2 == 0), memory_(memory), fill_(fill) {}

  // ---- Numbers ----
  std::uint64_t next() { return mix64(state_ += 0x9E3779B97F4A7C15u); }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int one_in) { return between(1, one_in) == 1; }
  std::int64_t one_of(std::initializer_list<std::int64_t> list) {
    return list.begin()[between(0, static_cast<std::int64_t>(list.size()) - 1)];
  }
  float real(float low, float high) {
    return low + (high - low) * static_cast<float>(next() >> 40) * 0x1p-24f;
  }
  // Mostly of size 1; zeros of both signs and small and large ones now and then.
  float value();
  // As value(), and where gates and their likes end: 0, 1, a line.
  float far_value() { return chance(16) ? real(-150, 150) : value(); }
  // A number of columns: mostly small, some beyond 128, some not a multiple of anything.
  // In bf16 multiples of 8, as legality asks.
  template <class T = float>
  std::int64_t width() {
    const std::int64_t any = any_width();
    return std::is_same_v<T, bf16> ? (any + 7) / 8 * 8 : any;
  }
  std::int64_t any_width() {
    return chance(6) ? between(100, 300) : chance(2) ? 8 * between(1, 8) : between(1, 50);
  }

  // ---- Operands ----
  template <class T>
  Tensor<T> place(std::int64_t rows, std::int64_t cols, const std::vector<T>& contents) {
    // As in a view of some columns. In half of all cases every row begins at a multiple of 16
    // bytes.
    const std::int64_t gap = one_of({0, 0, 3, 8});
    const std::int64_t skipped = one_of({0, 0, 4, 5});
    const std::int64_t pitch = rows == 1  ? cols
                               : aligned_ ? (cols + gap / 8 * 8 + 7) / 8 * 8
                                          : cols + gap;
    const std::int64_t offset = rows == 1 ? 0 : aligned_ ? skipped / 4 * 8 : skipped;
    std::vector<std::byte> bytes(static_cast<std::size_t>(offset + rows * pitch) * sizeof(T),
                                 std::byte{fill_.undefined});
    for (std::int64_t i = 0; i < rows && !contents.empty(); ++i) {
      std::memcpy(bytes.data() + static_cast<std::size_t>(offset + i * pitch) * sizeof(T),
                  contents.data() + i * cols, static_cast<std::size_t>(cols) * sizeof(T));
    }
    return {static_cast<T*>(memory_.place(bytes)) + offset, rows, cols, pitch};
  }
  // Out or Scratch: undefined before.
  template <class T>
  Tensor<T> out(std::int64_t rows, std::int64_t cols) {
    return place<T>(rows, cols, {});
  }
  template <class T = float>
  Tensor<T> values(std::int64_t rows, std::int64_t cols, const std::function<float()>& draw = {}) {
    return place(rows, cols, stored<T>(contents(rows * cols, draw)));
  }
  std::vector<float> contents(std::int64_t count, const std::function<float()>& draw = {});
  Tensor<StepState> state();

  // ---- Operands with a row for every row of a pack; rows of no document hold the fill ----
  std::vector<float> row_contents(const DrawnPack& pack, std::int64_t cols,
                                  const std::function<float()>& draw = {});
  template <class T = float>
  Tensor<T> row_values(const DrawnPack& pack, std::int64_t cols,
                       const std::function<float()>& draw = {});
  Tensor<float> row_numbers(const DrawnPack& pack, float low, float high);       // [1, T]
  Tensor<std::int32_t> row_integers(const DrawnPack& pack, std::int64_t below);  // [1, T]
  template <class T>
  void poison_padding(const DrawnPack& pack, std::int64_t cols, std::vector<T>& contents) const;
  float padding() const { return fill_.padding; }

 private:
  std::uint64_t state_;
  const bool aligned_;
  OpMemory& memory_;
  Fill fill_;
};

// Amaxes of what an op stores: 0 as a clear leaves them, or larger than most; in bf16 alone, and
// not in every case.
template <class T>
Tensor<std::uint32_t> amax_of_a_producer(OpBuilder& b, std::int64_t segments = 1) {
  if (!std::is_same_v<T, bf16> || b.chance(4)) return {};
  const std::int64_t field = b.chance(4) ? b.between(110, 200) : 0;
  return b.place(1, segments,
                 std::vector<std::uint32_t>(static_cast<std::size_t>(segments),
                                            static_cast<std::uint32_t>(field << 23)));
}

PackMetadata draw_pack_metadata(OpBuilder& b);

// A pack of documents, its metadata once in host memory and once as operands.
class DrawnPack {
 public:
  explicit DrawnPack(OpBuilder& b);
  bool padding(std::int64_t row) const { return host.row_document.data[row] < 0; }

  std::int64_t rows;
  std::int32_t chunk;
  struct Tables {
    Tensor<std::int32_t> cu_seqlens, cu_seqlens_padded, row_document;
  } host;
  Tensor<std::int32_t> cu_seqlens, cu_seqlens_padded, row_document, row_position, row_number;
  Tensor<std::int32_t> chunk_document, chunk_start, chunk_rows;

 private:
  std::shared_ptr<HostOpMemory> memory_;
};

template <class T>
void OpBuilder::poison_padding(const DrawnPack& pack, std::int64_t cols,
                               std::vector<T>& contents) const {
  for (std::int64_t i = 0; i < pack.rows; ++i) {
    if (pack.padding(i)) std::fill_n(contents.data() + i * cols, cols, st<T>(fill_.padding));
  }
}
template <class T>
Tensor<T> OpBuilder::row_values(const DrawnPack& pack, std::int64_t cols,
                                const std::function<float()>& draw) {
  return place(pack.rows, cols, stored<T>(row_contents(pack, cols, draw)));
}

// Logits with targets; rows without a target hold the fill.
struct DrawnTargets {
  explicit DrawnTargets(OpBuilder& b);
  std::int64_t rows, vocabulary;
  std::vector<float> logits;
  std::vector<std::int32_t> targets;
};

// Routing of a pack, and where its pairs go: scores and tables in host memory, copies as operands.
struct DrawnRouting {
  explicit DrawnRouting(OpBuilder& b);
  // An operand with a row for every row of the expert buffer; padding rows hold the fill.
  template <class T>
  Tensor<T> buffer_values(OpBuilder& b, std::int64_t cols) const;

  DrawnPack pack;
  std::int64_t experts, slots, width;  // width of the router's input
  std::int64_t buffer_rows;
  std::int32_t capacity;
  bool padded;
  RouterScore kind;
  CombineRule combine;
  struct Tables {
    Tensor<float> logits, scores, lse, weights;
    Tensor<std::int32_t> selected, counts, start, rows, pair_row, row_pair;
  } host;
  // The same as operands; rows of no document are as the ops leave them.
  Tensor<float> logits, scores, lse, weights;
  Tensor<std::int32_t> selected, counts, start, rows, pair_row, row_pair;

 private:
  std::shared_ptr<HostOpMemory> memory_;
};

template <class T>
Tensor<T> DrawnRouting::buffer_values(OpBuilder& b, std::int64_t cols) const {
  std::vector<T> values = stored<T>(b.contents(buffer_rows * cols));
  for (std::int64_t r = 0; r < buffer_rows; ++r) {
    if (host.row_pair.data[r] < 0) std::fill_n(values.data() + r * cols, cols, st<T>(b.padding()));
  }
  return b.place(buffer_rows, cols, values);
}

}  // namespace lockstep
