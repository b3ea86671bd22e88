#include <stdexcept>

#include "kernels/cuda/launch.h"

namespace lockstep {

void cuda_launch_check() {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorName(error));
}

}  // namespace lockstep
