#include <stdexcept>
#include <string>

#include "kernels/cuda/launch.h"

namespace lockstep {

void cuda_launch_check() {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(cudaGetErrorName(error)) + ": kernel launch: " + cudaGetErrorString(error));
}

}  // namespace lockstep
