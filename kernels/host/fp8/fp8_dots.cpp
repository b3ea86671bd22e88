#include "kernels/diagnostics/fp8_dots.h"

#include <algorithm>

#include "kernels/host/fp8/dot8.h"

namespace lockstep {

// The form of DOT8 that this machine runs its products with.
template <class A, class B>
void run(HostQueue, const Fp8Dots<A, B>& op) {
  dot8_product(dot8_forms().front().kernel, op.a.rows, op.b.rows, op.a.cols,
               Fp8View<A>{op.a.data, op.a.pitch}, Fp8View<B>{op.b.data, op.b.pitch},
               [&](std::int64_t top, std::int64_t rows, std::int64_t first, std::int64_t columns,
                   const float* tile) {
                 for (std::int64_t i = 0; i < rows; ++i)
                   std::copy_n(tile + i * kDot8Lanes, columns, op.d.row(top + i) + first);
               });
}
template void run(HostQueue, const Fp8Dots<e4m3, e4m3>&);
template void run(HostQueue, const Fp8Dots<e4m3, e5m2>&);
template void run(HostQueue, const Fp8Dots<e5m2, e4m3>&);
template void run(HostQueue, const Fp8Dots<e5m2, e5m2>&);

}  // namespace lockstep
