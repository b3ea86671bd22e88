// Small valid instances of attention, of that by cuDNN and of its tables.
#pragma once

#include "kernels/core/packed_documents.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/cudnn_attention.h"
#include "tests/kernels/any_op/op_builder.h"

namespace lockstep {

struct Heads {
  template <class T>
  static Heads drawn(OpBuilder& b) {
    const auto kv_heads = static_cast<std::int32_t>(b.between(1, 2));
    const std::int32_t heads = kv_heads * static_cast<std::int32_t>(b.between(1, 3));
    const auto any = b.one_of({2, 6, 16, 20, 64, 80, 128}), legal = b.one_of({16, 32, 64, 80, 128});
    return {heads, kv_heads, static_cast<std::int32_t>(std::is_same_v<T, bf16> ? legal : any)};
  }
  std::int64_t fused() const { return (heads + 2 * kv_heads) * head_dim; }
  std::int64_t width() const { return heads * head_dim; }
  std::int32_t heads, kv_heads, head_dim;
};

// The operands of a backward pass of attention: its inputs, and outputs of the host's forward pass
// with poison in the padding.
template <class T>
struct DrawnAttention {
  DrawnAttention(OpBuilder& b, const DrawnPack& pack, const Heads& shape)
      : qkv(stored<T>(b.row_contents(pack, shape.fused()))),
        o(static_cast<std::size_t>(pack.rows * shape.width())),
        lse(static_cast<std::size_t>(pack.rows * shape.heads)) {
    run(HostQueue{}, AttentionForward<T>{.qkv = tensor(qkv.data(), pack.rows, shape.fused()),
                                         .cu_seqlens = pack.host.cu_seqlens,
                                         .cu_seqlens_padded = pack.host.cu_seqlens_padded,
                                         .row_document = pack.host.row_document,
                                         .o = tensor(o.data(), pack.rows, shape.width()),
                                         .lse = tensor(lse.data(), pack.rows, shape.heads),
                                         .heads = shape.heads,
                                         .kv_heads = shape.kv_heads,
                                         .head_dim = shape.head_dim});
    b.poison_padding(pack, shape.width(), o);
    b.poison_padding(pack, shape.heads, lse);
  }
  std::vector<T> qkv, o;
  std::vector<float> lse;
};

// Lengths at the ends of classes, one off them, empty, and any other; as many as fit.
inline void draw(OpBuilder& b, AttentionTables& op) {
  const auto rows = b.between(1, 700), capacity = b.between(1, 20);
  const AttentionClasses classes(rows, capacity);
  std::vector<std::int32_t> padded, tokens{0};
  std::int64_t end = 0;
  for (std::int64_t d = 0; d < capacity; ++d) {
    const std::int64_t edge =
        classes.list[b.between(0, classes.count - 1)].longest + b.between(-1, 1);
    const std::int64_t drawn = b.chance(5) ? 0 : b.chance(2) ? edge : b.between(1, 90);
    const std::int64_t length = end + drawn > rows ? 0 : drawn,
                       gap = b.chance(3) ? b.between(1, 9) : 0;
    padded.push_back(static_cast<std::int32_t>(end));
    tokens.push_back(tokens.back() + static_cast<std::int32_t>(length));
    end = std::min(rows, end + length + gap);
  }
  padded.push_back(static_cast<std::int32_t>(end));
  op = {.cu_seqlens = b.place(1, capacity + 1, tokens),
        .cu_seqlens_padded = b.place(1, capacity + 1, padded),
        .lengths = b.out<std::int32_t>(1, classes.slots),
        .offsets = b.out<std::int64_t>(1, 3 * classes.offsets()),
        .rows = rows,
        .heads = 6,
        .kv_heads = 2,
        .head_dim = 16};
  op.offsets = tensor(op.offsets.data, 3, classes.offsets());
}

// A library takes rows that lie one behind the other.
template <class T>
Tensor<T> packed(OpBuilder& b, std::int64_t rows, std::int64_t cols,
                 const std::vector<T>& contents) {
  return tensor(b.place(1, rows * cols, contents).data, rows, cols);
}
struct DrawnTables {
  DrawnTables(OpBuilder& b, const DrawnPack& pack, const Heads& shape)
      : capacity(slots_of(pack.host)) {
    const AttentionClasses classes(pack.rows, capacity);
    std::vector<std::int32_t> length(static_cast<std::size_t>(classes.slots));
    std::vector<std::int64_t> offset(static_cast<std::size_t>(3 * classes.offsets()));
    run(HostQueue{}, AttentionTables{.cu_seqlens = pack.host.cu_seqlens,
                                     .cu_seqlens_padded = pack.host.cu_seqlens_padded,
                                     .lengths = tensor(length.data(), 1, classes.slots),
                                     .offsets = tensor(offset.data(), 3, classes.offsets()),
                                     .rows = pack.rows,
                                     .heads = shape.heads,
                                     .kv_heads = shape.kv_heads,
                                     .head_dim = shape.head_dim});
    lengths = b.place(1, classes.slots, length);
    offsets = packed(b, 3, classes.offsets(), offset);
  }
  std::int64_t capacity;
  Tensor<std::int32_t> lengths;
  Tensor<std::int64_t> offsets;
};
inline void draw(OpBuilder& b, CudnnAttentionForward& op) {
  const DrawnPack pack(b);
  const Heads shape = Heads::drawn<bf16>(b);
  const DrawnTables tables(b, pack, shape);
  op = {
      .qkv = packed(b, pack.rows, shape.fused(), stored<bf16>(b.row_contents(pack, shape.fused()))),
      .lengths = tables.lengths,
      .offsets = tables.offsets,
      .row_document = pack.row_document,
      .o = packed<bf16>(b, pack.rows, shape.heads * shape.head_dim, {}),
      .lse = packed<float>(b, pack.rows, shape.heads, {}),
      .workspace = b.out<std::uint8_t>(1, 300),
      .capacity = tables.capacity,
      .heads = shape.heads,
      .kv_heads = shape.kv_heads,
      .head_dim = shape.head_dim};
}
inline void draw(OpBuilder& b, CudnnAttentionBackward& op) {
  const DrawnPack pack(b);
  const Heads shape = Heads::drawn<bf16>(b);
  const DrawnTables tables(b, pack, shape);
  const DrawnAttention<bf16> drawn(b, pack, shape);
  op = {.qkv = packed(b, pack.rows, shape.fused(), drawn.qkv),
        .o = packed(b, pack.rows, shape.width(), drawn.o),
        .lse = packed(b, pack.rows, shape.heads, drawn.lse),
        .dout =
            packed(b, pack.rows, shape.width(), stored<bf16>(b.row_contents(pack, shape.width()))),
        .lengths = tables.lengths,
        .offsets = tables.offsets,
        .row_document = pack.row_document,
        .dqkv = packed<bf16>(b, pack.rows, shape.fused(), {}),
        .workspace = b.out<std::uint8_t>(1, 300),
        .capacity = tables.capacity,
        .heads = shape.heads,
        .kv_heads = shape.kv_heads,
        .head_dim = shape.head_dim};
}

}  // namespace lockstep
