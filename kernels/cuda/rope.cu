#include "kernels/cuda/element.cuh"
#include "kernels/rope.h"

namespace lockstep {
namespace {

__global__ void rope_table(RopeTable op) {
  const std::int64_t half = op.table.cols / 2;
  const Element e = own_element(op.table.rows, half);
  if (!e.inside) return;
  const float c = div(mul(-2.0f, log(op.base)), static_cast<float>(op.table.cols));
  const float frequency = expn(mul(c, static_cast<float>(e.col)));
  float sn, cs;
  sincos(mul(static_cast<float>(e.row), frequency), sn, cs);
  at(op.table, e.row, e.col) = cs;
  at(op.table, e.row, half + e.col) = sn;
}

// A thread per pair; q and k heads lie side by side.
template <class T>
__global__ void rope(Rope<T> op) {
  const std::int64_t half = op.head_dim / 2;
  const Element e = own_element(op.qkv.rows, (op.heads + op.kv_heads) * half);
  if (!e.inside || at(op.row_document, 0, e.row) < 0) return;
  const std::int64_t i = e.col % half;
  const std::int64_t first = e.col / half * op.head_dim + i;
  const std::int32_t position = at(op.row_position, 0, e.row);
  const float cs = at(op.table, position, i);
  const float sin_forward = at(op.table, position, half + i);
  const float sn = op.backward ? neg(sin_forward) : sin_forward;
  T& low = at(op.qkv, e.row, first);
  T& high = at(op.qkv, e.row, first + half);
  const float a = load(low);
  const float b = load(high);
  low = st<T>(fma(a, cs, neg(mul(b, sn))));
  high = st<T>(fma(a, sn, mul(b, cs)));
}

}  // namespace

void run(CudaQueue queue, const RopeTable& op) {
  launch_elements(queue, op.table.rows, op.table.cols / 2, rope_table, op);
}
template <class T>
void run(CudaQueue queue, const Rope<T>& op) {
  launch_elements(queue, op.qkv.rows, (op.heads + op.kv_heads) * (op.head_dim / 2), rope<T>, op);
}
template void run(CudaQueue, const Rope<float>&);
template void run(CudaQueue, const Rope<bf16>&);

}  // namespace lockstep
