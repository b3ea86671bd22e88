#include <stdexcept>

#include "kernels/cuda/common/launch.h"

namespace lockstep {

void cuda_launch_check(cudaError_t launched) {
  if (launched == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // Reported here and nowhere else.
  throw std::runtime_error(cudaGetErrorName(launched));
}

unsigned multiprocessors() {
  int device = 0;
  int count = 0;
  cuda_launch_check(cudaGetDevice(&device));
  cuda_launch_check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return static_cast<unsigned>(count);
}

}  // namespace lockstep
