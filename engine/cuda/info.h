// Facts about a GPU and of the libraries beside it.
#pragma once

#include "engine/device/backend.h"

namespace lockstep {

// Empty `name` if CUDA does not answer. Creates no context. Asked once a process: it takes some
// milliseconds.
DeviceInfo cuda_device_info(int index);

// Returns what NVML reports at this moment; zeros without NVML.
DeviceClocks cuda_clocks(int index);

}  // namespace lockstep
