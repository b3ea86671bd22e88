// Which device a command runs on. This process never opens CUDA to find out: a child does.
#pragma once

#include <string>

#include "engine/backend.h"
#include "harness/exit_status.h"

namespace lockstep {

struct NoDevice : WorldError {
  using WorldError::WorldError;
};

struct CudaProbe {
  bool present = false;
  DeviceInfo info;
  std::string why;  // Why there is none.
};
CudaProbe probe_cuda();

// "sim" or "cuda" for what --device says. Throws NoDevice for cuda without a GPU.
std::string choose_device(const std::string& asked);

}  // namespace lockstep
