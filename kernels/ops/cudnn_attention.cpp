#include "kernels/ops/cudnn_attention.h"

#include <algorithm>

#include "kernels/core/packed_documents.h"
#include "kernels/core/shape.h"

namespace lockstep {
namespace {

template <class Op>
void check_heads(const Op& op) {
  require(op.heads > 0 && op.kv_heads > 0 && op.heads % op.kv_heads == 0,
          "heads is a multiple of kv_heads");
  require(op.head_dim > 0 && op.head_dim % 8 == 0, "head_dim is a multiple of 8");
}

template <class Table>
void require_contiguous(const Table& x, std::int64_t rows, std::int64_t cols, const char* what) {
  require_shape(x, rows, cols, what);
  require(x.pitch == x.cols || x.rows == 1, "rows lie one behind the other");
}

template <class Op>
void check_common(const Op& op) {
  check_heads(op);
  const std::int64_t rows = op.qkv.rows;
  const AttentionClasses classes(rows, op.capacity, op.max_seqlen);
  require_contiguous(op.qkv, rows, (op.heads + 2 * op.kv_heads) * op.head_dim,
                     "qkv is [T, (heads + 2 kv_heads) hd]");
  require_contiguous(op.o, rows, op.heads * op.head_dim, "o is [T, heads * hd]");
  require_contiguous(op.lse, rows, op.heads, "lse is [T, heads]");
  require_shape(op.lengths, 1, classes.slots, "lengths is [1, slots]");
  require_contiguous(op.offsets, 3, classes.offsets(), "offsets is [3, slots + classes]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
}

}  // namespace

void check(const AttentionTables& op) {
  check_heads(op);
  const AttentionClasses classes(op.rows, slots_of(op), op.max_seqlen);
  require_shape(op.cu_seqlens, 1, op.cu_seqlens.cols, "cu_seqlens is [1, capacity + 1]");
  require_shape(op.cu_seqlens_padded, 1, op.cu_seqlens.cols,
                "cu_seqlens_padded is [1, capacity + 1]");
  require_shape(op.lengths, 1, classes.slots, "lengths is [1, slots]");
  require_contiguous(op.offsets, 3, classes.offsets(), "offsets is [3, slots + classes]");
}
void check(const CudnnAttentionForward& op) { check_common(op); }
void check(const CudnnAttentionBackward& op) {
  check_common(op);
  require_contiguous(op.dout, op.qkv.rows, std::int64_t{op.heads} * op.head_dim,
                     "dout is [T, heads * hd]");
  require_contiguous(op.dqkv, op.qkv.rows, op.qkv.cols, "dqkv is shaped as qkv");
}

std::int64_t reckoned_workspace(const CudnnAttentionForward&) { return 256; }
// 2 for each pair of rows of the largest class and head; fp32 for dk and dv of every query head, in
// rows as wide as those of qkv for each head of a group; a sum for each row and head.
std::int64_t reckoned_workspace(const CudnnAttentionBackward& op) {
  const AttentionClasses classes(op.qkv.rows, op.capacity, op.max_seqlen);
  const auto round_up = [](std::int64_t x, std::int64_t step) {
    return (x + step - 1) / step * step;
  };
  std::int64_t pairs = 0;
  for (int c = 1; c < classes.count; ++c) {
    const AttentionClass& one = classes.list[c];
    pairs = std::max(pairs, one.slots * round_up(one.longest, 64) * round_up(one.longest, 128));
  }
  const std::int64_t elements = op.qkv.rows * op.qkv.cols * (op.heads / op.kv_heads);
  return 2 * std::int64_t{op.heads} * pairs + 8 * elements + 4 * op.qkv.rows * op.heads + 256;
}

}  // namespace lockstep
