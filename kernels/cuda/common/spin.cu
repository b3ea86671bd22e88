#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/spin.h"

namespace lockstep {
namespace {

__device__ std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void spin_for(std::int64_t microseconds) {
  const std::uint64_t end = nanoseconds() + static_cast<std::uint64_t>(microseconds) * 1000;
  while (nanoseconds() < end) {
  }
}

}  // namespace

void spin(CudaQueue queue, std::int64_t microseconds) {
  launch(queue, dim3(1), dim3(1), spin_for, microseconds);
}

}  // namespace lockstep
