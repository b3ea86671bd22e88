// The GPU's conversion to fp8 has the codes of the model for every float: all 2^32 of them, in both
// places of a pair, for both types.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

#include "kernels/cuda/common/fp8_convert.cuh"

namespace lockstep {
namespace {

constexpr std::uint32_t kBlocks = 4096, kBlock = 256;
constexpr unsigned long long kNone = ~0ull;

struct Found {
  unsigned long long compared, differ, first;  // The lowest bit pattern that differs.
};

// The canary: this float is taken to have another code.
template <class F>
__global__ void __launch_bounds__(kBlock) compare_all(Found* found, unsigned long long canary) {
  std::uint32_t pattern = blockIdx.x * kBlock + threadIdx.x, compared = 0, differ = 0;
  do {
    const float x = from_bits(pattern), other = from_bits(pattern * 0x9E3779B1u + 1);
    const std::uint32_t want = fp8_code_of<F>(x).bits ^ (pattern == canary ? 1u : 0u);
    const std::uint32_t beside = fp8_code_of<F>(other).bits;
    ++compared;
    if (fp8_pair<F>(x, other) != (want | beside << 8) ||
        fp8_pair<F>(other, x) != (beside | want << 8)) {
      ++differ;
      atomicMin(&found->first, static_cast<unsigned long long>(pattern));
    }
    pattern += kBlocks * kBlock;
  } while (pattern >= kBlocks * kBlock);
  atomicAdd(&found->compared, static_cast<unsigned long long>(compared));
  atomicAdd(&found->differ, static_cast<unsigned long long>(differ));
}

template <class F>
bool run(const char* type, unsigned long long canary, unsigned long long want) {
  Found* found = nullptr;
  if (cudaMallocManaged(&found, sizeof(Found)) != cudaSuccess) return false;
  *found = {0, 0, kNone};
  cudaStream_t stream = nullptr;
  if (cudaStreamCreate(&stream) != cudaSuccess) return false;
  compare_all<F><<<kBlocks, kBlock, 0, stream>>>(found, canary);
  const bool ran = cudaStreamSynchronize(stream) == cudaSuccess;
  std::printf("%s: %llu compared, %llu differ, first %llx\n", type, found->compared, found->differ,
              found->first);
  const bool ok = ran && found->compared == 1ull << 32 && found->differ == want &&
                  (want == 0 || found->first == canary);
  return cudaStreamDestroy(stream) == cudaSuccess && cudaFree(found) == cudaSuccess && ok;
}

}  // namespace
}  // namespace lockstep

int main() {
  using namespace lockstep;
  const bool caught = run<e4m3>("e4m3 with a canary", 0x3f800000, 1) &&
                      run<e5m2>("e5m2 with a canary", 0x3f800000, 1);
  const bool equal = run<e4m3>("e4m3", kNone, 0) && run<e5m2>("e5m2", kNone, 0);
  return caught && equal ? 0 : 1;
}
