// The contract's attention, over the documents that the tables of cuDNN's show.
#include "kernels/ops/cudnn_attention.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/core/fault.h"
#include "kernels/core/packed_documents.h"
#include "kernels/ops/attention.h"

namespace lockstep {
namespace {

// Documents as the slots of some classes show them.
struct Shown {
  std::vector<std::int32_t> starts, tokens{0};

  template <class Op>
  Shown(const Op& op, int from_class, int end_class) {
    const AttentionClasses classes(op.qkv.rows, op.capacity, op.max_seqlen);
    for (int c = from_class; c < end_class; ++c) {
      const AttentionClass& one = classes.list[c];
      for (std::int64_t s = 0; s < one.slots; ++s) {
        tokens.push_back(tokens.back() + op.lengths.data[one.first + s]);
        starts.push_back(
            static_cast<std::int32_t>(op.offsets.data[classes.first_offset(c) + s] / op.qkv.cols));
      }
    }
    starts.push_back(static_cast<std::int32_t>(op.qkv.rows));
  }
  Tensor<std::int32_t> cu_seqlens() { return tensor(tokens.data(), 1, std::ssize(tokens)); }
  Tensor<std::int32_t> cu_seqlens_padded() { return tensor(starts.data(), 1, std::ssize(starts)); }
};

// Nothing reads its contents after the op.
void use_up(Scratch<std::uint8_t> workspace) {
  if (workspace) std::memset(workspace.data, 0xa7, workspace.cols);
}

}  // namespace

void run(HostQueue, const AttentionTables& op) {
  const std::int64_t capacity = slots_of(op);
  const AttentionClasses classes(op.rows, capacity, op.max_seqlen);
  const std::int64_t widths[] = {(op.heads + 2 * op.kv_heads) * op.head_dim, op.heads * op.head_dim,
                                 op.heads};
  for (int c = 0; c < classes.count; ++c) {
    const AttentionClass& one = classes.list[c];
    const std::int64_t lost =
        faulty("attention-tables-lose-the-longest-of-a-class", 0, c > 0 ? 1 : 0);
    const auto put = [&](std::int64_t slot, std::int64_t row) {
      for (std::int64_t w = 0; w < 3; ++w)
        op.offsets.row(w)[classes.first_offset(c) + slot] = row * widths[w];
    };
    std::int64_t slot = 0, rows_before = 0;
    for (std::int64_t d = 0; d < capacity; ++d) {
      const std::int32_t length = tokens_of(op, d);
      const std::int64_t start =
          faulty("attention-tables-ignore-gaps", first_row_of(op, d), rows_before);
      rows_before += length;
      const bool here = length > one.above && length <= one.longest - lost;
      if (!here || slot == one.slots) continue;
      op.lengths.data[one.first + slot] = length;
      put(slot++, start);
    }
    for (; slot < one.slots; ++slot) {
      op.lengths.data[one.first + slot] = 0;
      put(slot, op.rows);
    }
    put(one.slots, op.rows);
  }
}

void run(HostQueue queue, const CudnnAttentionForward& op) {
  use_up(op.workspace);
  Shown documents(op, 0, 1);
  run(queue, AttentionForward<bf16>{.qkv = op.qkv,
                                    .cu_seqlens = documents.cu_seqlens(),
                                    .cu_seqlens_padded = documents.cu_seqlens_padded(),
                                    .row_document = op.row_document,
                                    .o = op.o,
                                    .lse = op.lse,
                                    .heads = op.heads,
                                    .kv_heads = op.kv_heads,
                                    .head_dim = op.head_dim});
}

void run(HostQueue queue, const CudnnAttentionBackward& op) {
  use_up(op.workspace);
  Shown documents(op, 1, AttentionClasses(op.qkv.rows, op.capacity, op.max_seqlen).count);
  std::vector<float> delta(op.qkv.rows * op.heads);
  std::int32_t next_tile[2] = {};
  run(queue, AttentionBackward<bf16>{.qkv = op.qkv,
                                     .o = op.o,
                                     .lse = op.lse,
                                     .dout = op.dout,
                                     .cu_seqlens = documents.cu_seqlens(),
                                     .cu_seqlens_padded = documents.cu_seqlens_padded(),
                                     .row_document = op.row_document,
                                     .delta = tensor(delta.data(), op.qkv.rows, op.heads),
                                     .next_tile = tensor(next_tile, 1, 2),
                                     .dqkv = op.dqkv,
                                     .heads = op.heads,
                                     .kv_heads = op.kv_heads,
                                     .head_dim = op.head_dim});
}

}  // namespace lockstep
