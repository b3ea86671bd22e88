// Stands for the CUDA object: throws the engine's exception, and reads the fault that the program
// planted.
#include "engine/device/backend.h"
#include "kernels/core/fault.h"

extern "C" void throw_device_error() {
  throw lockstep::DeviceError("cudaErrorNoDevice", "throw_device_error");
}
extern "C" bool sees_fault(const char* name) { return lockstep::fault(name); }
