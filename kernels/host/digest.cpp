#include "kernels/diagnostics/digest.h"

#include "kernels/core/fault.h"

namespace lockstep {

void run(HostQueue, const Digest& op) {
  const std::uint64_t place = faulty("digest-ignores-place", 1, 0);
  std::uint64_t low = 0, high = 0;
  for (std::int64_t i = 0; i < op.values.rows; ++i) {
    for (std::int64_t c = 0; c < op.values.cols; ++c) {
      const std::uint64_t e =
          (op.first + static_cast<std::uint64_t>(i * op.values.cols + c)) * place;
      const std::uint64_t b = bits(op.values.row(i)[c]);
      const std::uint64_t k = mix64(op.tensor * 0x9E3779B97F4A7C15u + e + 1);
      low += mix64(k ^ b);
      high += mix64((k + 0xD1B54A32D192ED03u) ^ (b << 32));
    }
  }
  op.sums.data[0] += low;
  op.sums.data[1] += high;
}

}  // namespace lockstep
