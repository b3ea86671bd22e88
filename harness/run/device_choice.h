// Which device a command runs on. This process never opens CUDA to find out: a child does.
#pragma once

#include <cstdint>
#include <string>

#include "engine/device/backend.h"
#include "harness/base/errors.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct NoDevice : WorldError {
  using WorldError::WorldError;
};

struct CudaProbe {
  bool present = false;
  DeviceInfo info;
  int gpus = 0;     // Visible to a process.
  std::string why;  // Why there is none.
};
// To open a GPU takes a second, more than many a case; the first case that cannot says so.
enum class Probe : std::uint8_t { looks, opens };
CudaProbe probe_cuda(Probe how = Probe::opens);

// The GPUs that a process of this program sees; it asks once, and children have the answer.
int gpus_here();

// Returns "sim" or "cuda" for the value of --device. Throws NoDevice for cuda without a GPU.
std::string choose_device(const std::string& asked);

// The resources that a scenario needs and this machine lacks with that device: GPUs for its ranks,
// NCCL, cuDNN. "" for nothing.
std::string lacking(const Scenario& scenario, const std::string& device);

// Sets CUDA_DEVICE_MAX_CONNECTIONS to 2 unless it has a value: with more channels, those that wait
// slow the copies of graphs. To be called before this process opens a GPU. Source:
// docs/offloading.md, "Branches of a graph".
void leave_two_channels();

// Why attention by cuDNN cannot run on this device; "" where it can.
std::string cudnn_is_off(const DeviceInfo& info);

}  // namespace lockstep
