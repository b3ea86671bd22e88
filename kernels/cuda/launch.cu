#include <stdexcept>

#include "kernels/cuda/launch.h"

namespace lockstep {

void cuda_launch_check(cudaError_t launched) {
  if (launched == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // Reported here and nowhere else.
  throw std::runtime_error(cudaGetErrorName(launched));
}

}  // namespace lockstep
