// The interface of the CUDA object for the program that opens it.
#include <cuda_runtime.h>

#include "engine/cuda/backend.h"
#include "engine/cuda/call.h"
#include "engine/cuda/call_events.h"
#include "engine/cuda/info.h"
#include "engine/device/cuda_object.h"
#include "kernels/core/fault.h"

#define LOCKSTEP_ENTRY extern "C" __attribute__((visibility("default")))

LOCKSTEP_ENTRY lockstep::Backend* lockstep_open_cuda(const lockstep::CudaProgram* program,
                                                     int index) {
  lockstep::cuda_program = program;
  lockstep::plant_fault(program->planted_fault);
  return lockstep::make_cuda_backend(index).release();
}

LOCKSTEP_ENTRY void lockstep_cuda_devices(std::vector<lockstep::DeviceInfo>* list) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  static_cast<void>(cudaGetLastError());
  for (int index = 0; index < count; ++index) list->push_back(lockstep::cuda_device_info(index));
}

LOCKSTEP_ENTRY lockstep::StreamStopwatch* lockstep_cuda_stopwatch() {
  return std::make_unique<lockstep::EventStopwatch>().release();
}
