#include "kernels/ops/rope.h"

#include "kernels/core/shape.h"

namespace lockstep {

void check(const RopeTable& op) {
  require_shape(op.table, op.table.rows, op.table.cols, "table is [positions, hd]");
  require(op.table.cols % 2 == 0, "hd is even");
  require(op.table.rows <= 1048576, "at most 1048576 positions: the longest pack");
  require(op.base >= 1, "base >= 1");  // One slightly above is one as a float.
}
template <class T>
void check(const Rope<T>& op) {
  const auto rows = op.qkv.rows;
  require(op.heads > 0 && op.kv_heads > 0 && op.heads % op.kv_heads == 0,
          "heads is a multiple of kv_heads");
  require(op.head_dim > 0 && op.head_dim % 2 == 0, "head_dim is even");
  require_shape(op.qkv, rows, (op.heads + 2 * op.kv_heads) * op.head_dim,
                "qkv is [T, (heads + 2 kv_heads) * hd]");
  require_shape(op.table, op.table.rows, op.head_dim, "table is [positions, hd]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.row_position, 1, rows, "row_position is [1, T]");
  require_amax<T>(op);
}
template void check(const Rope<float>&);
template void check(const Rope<bf16>&);

}  // namespace lockstep
