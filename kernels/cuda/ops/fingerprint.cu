#include "kernels/core/fault.h"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/diagnostics/fingerprint.h"

namespace lockstep {
namespace {

// One block per function. Integer sums modulo 2^64: their order is free.
__global__ void fingerprint_kernel(Out<std::uint64_t> hashes, bool flush) {
  pdl_begin();
  __shared__ unsigned long long sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  unsigned long long own = 0;
  for (std::uint64_t e = threadIdx.x; e < kFingerprintInputs; e += kThreads) {
    own += fingerprint::term(static_cast<int>(blockIdx.x), e, flush);
  }
  atomicAdd(&sum, own);
  __syncthreads();
  if (threadIdx.x == 0) hashes.data[blockIdx.x] = sum;
}

}  // namespace

void run(CudaQueue queue, const Fingerprint& op) {
  launch(queue, dim3(kFingerprints), dim3(kThreads), kPdl, fingerprint_kernel, op.hashes,
         faulty("device-flushes-subnormals", false, true));
}

}  // namespace lockstep
