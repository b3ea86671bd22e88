#include "kernels/cuda/common/raise_amax.cuh"
#include "kernels/cuda/common/vec8.cuh"
#include "kernels/ops/rope.h"

namespace lockstep {
namespace {

__global__ void rope_table(RopeTable op) {
  pdl_begin();
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

// Values are read for their amax alone.
template <class T>
__host__ __device__ std::int64_t heads_of_threads(const Rope<T>& op) {
  return op.heads + (op.amax.data == nullptr ? 1 : 2) * op.kv_heads;
}
template <class T>
__device__ __forceinline__ void take_amax(const Rope<T>& op, const float (&a)[kVec8],
                                          const float (&b)[kVec8]) {
  if (op.amax.data == nullptr) return;
  StoredMagnitudes stored;
  stored.take_vec8<T>(a);
  stored.take_vec8<T>(b);
  raise_amax(op.amax.data, stored);
}

// One thread per eight pairs of a head. The heads of q, k and v lie side by side.
template <class T>
__global__ void rope(Rope<T> op, bool wide) {
  pdl_begin();
  const std::int64_t half = op.head_dim / 2;
  const std::int64_t per_head = (half + kVec8 - 1) / kVec8;
  const std::int64_t per_row = heads_of_threads(op) * per_head;
  const Vec8s e = own_vec8(op.qkv.rows, per_row * kVec8);
  if (!e.inside) return;
  const auto place = static_cast<std::uint32_t>(e.col / kVec8);
  const std::uint32_t head = place / static_cast<std::uint32_t>(per_head);
  const std::int64_t i = (place - head * per_head) * kVec8;
  T* const low = &at(op.qkv, e.row, head * op.head_dim + i);
  float a[kVec8], b[kVec8], cs[kVec8], sn[kVec8];
  load_vec8(a, low, half - i, wide);  // Loaded together with the row's document, not after it.
  load_vec8(b, low + half, half - i, wide);
  const std::int64_t position = at(op.row_position, 0, e.row);
  if (at(op.row_document, 0, e.row) < 0) return;
  if (head >= static_cast<std::uint32_t>(op.heads + op.kv_heads)) return take_amax(op, a, b);
  const float* const table = &at(op.table, position, i);
  load_vec8(cs, table, half - i, wide);
  load_vec8(sn, table + half, half - i, wide);
  each_vec8([&](int k) {
    const float sine = op.backward ? neg(sn[k]) : sn[k];
    const float x = a[k];
    a[k] = fma(x, cs[k], neg(mul(b[k], sine)));
    b[k] = fma(x, sine, mul(b[k], cs[k]));
  });
  store_vec8(low, a, half - i, wide);
  store_vec8(low + half, b, half - i, wide);
  take_amax(op, a, b);
}

}  // namespace

void run(CudaQueue queue, const RopeTable& op) {
  launch_elements(queue, op.table.rows, op.table.cols / 2, rope_table, op);
}
template <class T>
void run(CudaQueue queue, const Rope<T>& op) {
  const bool wide = op.head_dim % (2 * kVec8) == 0 && all_vectorizable(op.qkv, op.table);
  const std::int64_t per_head = (op.head_dim / 2 + kVec8 - 1) / kVec8;
  launch_vec8(queue, op.qkv.rows, heads_of_threads(op) * per_head * kVec8, rope<T>, op, wide);
}
template void run(CudaQueue, const Rope<float>&);
template void run(CudaQueue, const Rope<bf16>&);

}  // namespace lockstep
