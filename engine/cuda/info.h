// Facts about a GPU and of the libraries beside it.
#pragma once

#include "engine/device/backend.h"

namespace lockstep {

// Empty `name` if CUDA does not answer. Creates no context. Asked once a process: it takes some
// milliseconds.
DeviceInfo cuda_device_info(int index);

// By NVML, which is asked for at each call; zeros without it.
DeviceClocks cuda_clocks(int index);

}  // namespace lockstep
