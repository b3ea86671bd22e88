#include "kernels/ops/accumulate.h"

#include "kernels/core/contract.h"
#include "kernels/core/fault.h"

namespace lockstep {

void run(HostQueue, const AccumulateGradient& op) {
  const bool overwrites = faulty("accumulate-overwrites", false, true);
  for (std::int64_t i = 0; i < op.g.rows; ++i) {
    const float* g = op.g.row(i);
    float* acc = op.acc.row(i % op.acc.rows);
    for (std::int64_t e = 0; e < op.acc.cols; ++e) acc[e] = overwrites ? g[e] : add(acc[e], g[e]);
  }
}

void run(HostQueue, const ZeroGradient& op) {
  const std::int64_t first = faulty("zero-gradient-keeps-first-row", 0, 1);
  for (std::int64_t i = first; i < op.acc.rows; ++i) {
    float* acc = op.acc.row(i);
    for (std::int64_t e = 0; e < op.acc.cols; ++e) acc[e] = 0.0f;
  }
}

}  // namespace lockstep
