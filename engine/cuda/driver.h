// Functions of the driver (libcuda.so.1) that the runtime does not have.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace lockstep {

struct CudaDriver {
  CUresult (*wait_value)(CUstream, CUdeviceptr, cuuint32_t value, unsigned flags);
  CUresult (*write_value)(CUstream, CUdeviceptr, cuuint32_t value, unsigned flags);
  CUresult (*address_range)(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr of);
};

// Null functions where the driver lacks them.
const CudaDriver& cuda_driver();

}  // namespace lockstep
