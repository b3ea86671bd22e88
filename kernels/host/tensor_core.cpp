#include "kernels/diagnostics/tensor_core.h"

#include <array>

#include "kernels/core/fault.h"
#include "kernels/host/fda16.h"

namespace lockstep {

// The form of FDA16 that this machine runs its products with.
void run(HostQueue, const TensorCoreDots& op) {
  const std::int64_t depth = kDotDepth - faulty("tensor-core-drops-a-product", 0, 1);
  FdaPanels b;
  std::array<float, kDotDepth> a{};
  for (std::int64_t i = 0; i < op.a.rows; ++i) {
    const std::int64_t tile = i / kDotRows;
    if (i % kDotRows == 0) b.pack(depth, kDotColumns, op.b.row(tile * kDotColumns), 1, op.b.pitch);
    for (std::size_t k = 0; k < a.size(); ++k) a[k] = load(op.a.row(i)[k]);
    for (std::int64_t j = 0; j < kDotColumns; ++j) op.d.row(i)[j] = op.c.row(i)[j];
    fda_row(0, depth, a.data(), 1, b, op.d.row(i), kDotColumns);
  }
}

}  // namespace lockstep
