#include "kernels/ops/attention.h"

#include "kernels/core/shape.h"

namespace lockstep {
namespace {

template <class Op>
void check_heads(const Op& op) {
  require(op.heads > 0 && op.kv_heads > 0 && op.heads % op.kv_heads == 0,
          "heads is a multiple of kv_heads");
  require(op.head_dim > 0, "head_dim > 0");
  require_shape(op.qkv, op.qkv.rows, (op.heads + 2 * op.kv_heads) * op.head_dim,
                "qkv is [T, (heads + 2 kv_heads) hd]");
  require_shape(op.o, op.qkv.rows, op.heads * op.head_dim, "o is [T, heads * hd]");
  require_shape(op.lse, op.qkv.rows, op.heads, "lse is [T, heads]");
  require_shape(op.cu_seqlens, 1, op.cu_seqlens.cols, "cu_seqlens is [1, capacity + 1]");
  require_shape(op.cu_seqlens_padded, 1, op.cu_seqlens.cols,
                "cu_seqlens_padded is [1, capacity + 1]");
  require_shape(op.row_document, 1, op.qkv.rows, "row_document is [1, T]");
}

}  // namespace

template <class T>
void check(const AttentionForward<T>& op) {
  check_heads(op);
  require_amax<T>(op);
}
template <class T>
void check(const AttentionBackward<T>& op) {
  check_heads(op);
  require_shape(op.dout, op.qkv.rows, op.heads * op.head_dim, "dout is [T, heads * hd]");
  require_shape(op.delta, op.qkv.rows, op.heads, "delta is [T, heads]");
  require_shape(op.next_tile, 1, 2, "next_tile is [1, 2]");
  require_shape(op.dqkv, op.qkv.rows, op.qkv.cols, "dqkv is shaped as qkv");
}
template void check(const AttentionForward<float>&);
template void check(const AttentionForward<bf16>&);
template void check(const AttentionBackward<float>&);
template void check(const AttentionBackward<bf16>&);

}  // namespace lockstep
