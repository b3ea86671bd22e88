// The one seam between the program and its CUDA object. No exception is thrown on one side and
// caught on the other: each has its own C++ runtime if these are linked statically, so the object
// asks the program to throw.
#pragma once

#include <memory>
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

// Seconds between two places of a stream, for measurements alone.
class StreamStopwatch {
 public:
  virtual ~StreamStopwatch() = default;
  // One after the other on one stream, outside of captures.
  virtual void begin(BackendStream* stream) = 0;
  virtual void end(BackendStream* stream) = 0;
  // Returns the seconds between all such pairs since it was called last, and waits for these.
  virtual double take() = 0;
};
inline constexpr char kCudaStopwatch[] = "lockstep_cuda_stopwatch";
using CudaStopwatch = StreamStopwatch*();
// Measures on the GPU that this thread has opened. Throws DeviceError without the object.
std::unique_ptr<StreamStopwatch> open_cuda_stopwatch();

// From now on open_cuda() and cuda_devices() load this object instead of the one beside the
// program. Only the user's own words may lead here, because the object's code is then the engine.
void use_cuda_object(const std::string& path);

}  // namespace lockstep
