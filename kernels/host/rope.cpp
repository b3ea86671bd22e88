#include "kernels/ops/rope.h"

#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "kernels/host/raise_amax.h"

namespace lockstep {

void run(HostQueue, const RopeTable& op) {
  const std::int64_t half = op.table.cols / 2;
  const float c = div(mul(-2.0f, log(op.base)), static_cast<float>(op.table.cols));
  const std::int64_t shift = faulty("rope-table-starts-at-one", 0, 1);
  for (std::int64_t position = 0; position < op.table.rows; ++position) {
    float* row = op.table.row(position);
    for (std::int64_t i = 0; i < half; ++i) {
      const float frequency = expn(mul(c, static_cast<float>(i)));
      sincos(mul(static_cast<float>(position + shift), frequency), row[half + i], row[i]);
    }
  }
}

template <class T>
static std::int64_t position_of(const Rope<T>& op, std::int64_t row) {
  return faulty<std::int64_t>("rope-positions-of-the-pack", op.row_position.data[row], row);
}

template <class T>
static void take_amax(const Rope<T>& op) {
  Accum<T> seen = op.qkv;
  seen.cols = faulty<std::int64_t>("fp8-amax-of-queries-alone", seen.cols, op.heads * op.head_dim);
  raise_amax(op, seen);
}

template <class T>
void run(HostQueue, const Rope<T>& op) {
  const std::int64_t half = op.head_dim / 2;
  const std::int64_t rotated = op.heads + op.kv_heads - faulty("rope-skips-last-key-head", 0, 1);
  const bool backward = faulty("rope-backward-rotates-forward", op.backward, false);
  for (std::int64_t i = 0; i < op.qkv.rows; ++i) {
    if (op.row_document.data[i] < 0) continue;
    const std::int64_t position = position_of(op, i);
    require(position >= 0 && position < op.table.rows, "the table has the row's position");
    const float* cosines = op.table.row(position);
    const float* sines = cosines + half;
    for (std::int64_t h = 0; h < rotated; ++h) {
      T* a = op.qkv.row(i) + h * op.head_dim;
      T* b = a + half;
      for (std::int64_t e = 0; e < half; ++e) {
        const float x = load(a[e]), y = load(b[e]), cs = cosines[e],
                    sn = backward ? neg(sines[e]) : sines[e];
        a[e] = st<T>(fma(x, cs, neg(mul(y, sn))));
        b[e] = st<T>(fma(x, sn, mul(y, cs)));
      }
    }
  }
  take_amax(op);
}

template void run(HostQueue, const Rope<float>&);
template void run(HostQueue, const Rope<bf16>&);

}  // namespace lockstep
