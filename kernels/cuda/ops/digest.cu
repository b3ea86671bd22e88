#include "kernels/cuda/common/reduce.cuh"
#include "kernels/diagnostics/digest.h"

namespace lockstep {
namespace {

__device__ std::uint64_t warp_sum(std::uint64_t x) {
#pragma unroll
  for (int off = kWarp / 2; off > 0; off /= 2) x += __shfl_xor_sync(kAllLanes, x, off);
  return x;
}

inline constexpr unsigned kDigestBlocks = 1024;

// Integer sums modulo 2^64: their order is free, hence the atomics.
__global__ void digest(Digest op) {
  pdl_begin();
  const std::int64_t size = op.values.rows * op.values.cols;
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; e < size;
       e += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    const std::int64_t row = e / op.values.cols;
    const std::uint64_t b = bits(at(op.values, row, e - row * op.values.cols));
    const std::uint64_t k =
        mix64(op.tensor * 0x9E3779B97F4A7C15u + op.first + static_cast<std::uint64_t>(e) + 1);
    low += mix64(k ^ b);
    high += mix64((k + 0xD1B54A32D192ED03u) ^ (b << 32));
  }
  low = warp_sum(low);
  high = warp_sum(high);
  if (lane_index() != 0) return;
  auto* const sums = reinterpret_cast<unsigned long long*>(op.sums.data);
  atomicAdd(sums, static_cast<unsigned long long>(low));
  atomicAdd(sums + 1, static_cast<unsigned long long>(high));
}

}  // namespace

void run(CudaQueue queue, const Digest& op) {
  const unsigned blocks = blocks_for(op.values.rows * op.values.cols, kThreads);
  launch(queue, dim3(blocks < kDigestBlocks ? blocks : kDigestBlocks), dim3(kThreads), kPdl, digest,
         op);
}

}  // namespace lockstep
