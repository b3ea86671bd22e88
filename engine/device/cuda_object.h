// The one seam between the program and its CUDA object. No exception is thrown on one side and
// caught on the other: each has its own C++ runtime if these are linked statically, so the object
// asks the program to throw.
#pragma once

#include <source_location>
#include <string>
#include <vector>

#include "engine/device/backend.h"

namespace lockstep {

struct CudaProgram {
  // Throws DeviceError.
  void (*raise)(const char* code, const char* call, const std::source_location* at);
  const char* planted_fault;
};

inline constexpr char kCudaOpen[] = "lockstep_open_cuda";
using CudaOpen = Backend*(const CudaProgram*, int index);

inline constexpr char kCudaDevices[] = "lockstep_cuda_devices";
// Appends; none if there is no driver or no GPU.
using CudaDevices = void(std::vector<DeviceInfo>*);

// From now on open_cuda() and cuda_devices() load this object instead of the one beside the
// program. Only the user's own words may lead here, because the object's code is then the engine.
void use_cuda_object(const std::string& path);

}  // namespace lockstep
