#include "kernels/ops/scan.h"

#include <initializer_list>

#include "kernels/core/shape.h"

namespace lockstep {
namespace {

template <class Op>
void check_common(const Op& op, std::int64_t rows, std::int64_t d_inner) {
  require(op.heads > 0 && op.groups > 0 && op.heads % op.groups == 0,
          "heads is a multiple of groups");
  require(op.state > 0 && op.chunk > 0, "state > 0, chunk > 0");
  require(d_inner > 0 && d_inner % op.heads == 0, "d_inner is a multiple of heads");
  require_shape(op.xbc, rows, d_inner + 2 * op.groups * op.state,
                "xbc is [T, d_inner + 2 groups N]");
  require_shape(op.dt, rows, op.heads, "dt is [T, heads]");
  require_shape(op.dt_bias, 1, op.heads, "dt_bias is [1, heads]");
  require_shape(op.a_log, 1, op.heads, "a_log is [1, heads]");
  require_shape(op.d, 1, op.heads, "d is [1, heads]");
  require_shape(op.cu_seqlens, 1, op.cu_seqlens.cols, "cu_seqlens is [1, capacity + 1]");
  require_shape(op.cu_seqlens_padded, 1, op.cu_seqlens.cols,
                "cu_seqlens_padded is [1, capacity + 1]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.chunk_document, 1, op.chunk_document.cols, "chunk_document is [1, max_chunks]");
  require_shape(op.chunk_start, 1, op.chunk_document.cols, "chunk_start is [1, max_chunks]");
  require_shape(op.chunk_rows, 1, op.chunk_document.cols, "chunk_rows is [1, max_chunks]");
  require_shape(op.states, op.chunk_document.cols, op.state * d_inner,
                "states is [max_chunks, heads * N * P]");
}

}  // namespace

template <class T>
void check(const ScanForward<T>& op) {
  check_common(op, op.y.rows, op.y.cols);
  require_shape(op.y, op.y.rows, op.y.cols, "y is [T, d_inner]");
}
template <class T>
void check(const ScanBackward<T>& op) {
  const auto rows = op.dy.rows;
  check_common(op, rows, op.dy.cols);
  require_shape(op.dy, rows, op.dy.cols, "dy is [T, d_inner]");
  require_shape(op.dstates, op.states.rows, op.states.cols, "dstates is shaped as states");
  require_shape(op.rows, rows, 3 * op.heads, "rows is [T, 3 * heads]");
  require_shape(op.dxbc, rows, op.xbc.cols, "dxbc is shaped as xbc");
  require_shape(op.ddt, rows, op.heads, "ddt is [T, heads]");
  require_shape(op.ddt_bias, 1, op.heads, "ddt_bias is [1, heads]");
  require_shape(op.da_log, 1, op.heads, "da_log is [1, heads]");
  require_shape(op.dd, 1, op.heads, "dd is [1, heads]");
  for (const Accum<float>& total : {op.dt_bias_total, op.a_log_total, op.d_total}) {
    if (total) require_shape(total, 1, op.heads, "a total is [1, heads]");
  }
  require_amax<T>(op);
}
template void check(const ScanForward<float>&);
template void check(const ScanForward<bf16>&);
template void check(const ScanBackward<float>&);
template void check(const ScanBackward<bf16>&);

}  // namespace lockstep
