#include "engine/cuda/info.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <vector>

#include "engine/cuda/nvtx.h"
#include "engine/device/copy_engines.h"
#include "kernels/cuda/attention/cudnn_plans.h"

namespace lockstep {
namespace {

std::string dotted(int major, int minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}
std::string dotted(int major, int minor, int patch) {
  return dotted(major, minor) + "." + std::to_string(patch);
}
std::string cuda_version(int version) { return dotted(version / 1000, version % 1000 / 10); }

// Calls `symbol` of the first library that is there. The handle is kept: the engine may use the
// library later.
template <class Function, class Use>
std::string ask(const std::vector<const char*>& libraries, const char* symbol, Use use) {
  for (const char* library : libraries) {
    void* handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
    auto* function = handle ? reinterpret_cast<Function*>(dlsym(handle, symbol)) : nullptr;
    if (function) return use(function);
  }
  return "";
}

// "580.159.04", which CUDA itself does not tell.
std::string driver_version() {
  return ask<int(char*, unsigned)>(
      {"libnvidia-ml.so.1"}, "nvmlSystemGetDriverVersion", [](auto* get) {
        void* library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
        auto* start = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
        char text[80] = "";
        return start && start() == 0 && get(text, sizeof text) == 0 ? std::string(text)
                                                                    : std::string();
      });
}

// 22809 for 2.28.9, 0 for none.
int nccl_number() {
  int v = 0;
  ask<int(int*)>({"libnccl.so.2"}, "ncclGetVersion", [&](auto* get) {
    if (get(&v) != 0) v = 0;
    return std::string();
  });
  return v;
}
std::string nccl_version(int v) {
  return v == 0 ? "" : dotted(v / 10000, v % 10000 / 100, v % 100);
}

std::string cudnn_version() {
  return ask<std::size_t()>({"libcudnn.so.9"}, "cudnnGetVersion", [](auto* get) {
    const int v = static_cast<int>(get());
    return dotted(v / 10000, v % 10000 / 100, v % 100);
  });
}

std::string cublas_version() {
  return ask<std::size_t()>({"libcublasLt.so.13", "libcublasLt.so.12"}, "cublasLtGetVersion",
                            [](auto* get) {
                              const int v = static_cast<int>(get());
                              return v < 100000 ? dotted(v / 1000, v % 1000 / 10, v % 10)
                                                : dotted(v / 10000, v % 10000 / 100, v % 100);
                            });
}

template <class Function>
bool find(void* library, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  return function != nullptr;
}

}  // namespace

DeviceClocks cuda_clocks(int index) {
  constexpr int kSm = 1, kMemory = 2;  // nvmlClockType_t
  void* library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  char bus[32] = "";
  void* device = nullptr;
  int (*start)() = nullptr;
  int (*by_bus)(const char*, void**) = nullptr;
  int (*clock)(void*, int, unsigned*) = nullptr;
  int (*power)(void*, unsigned*) = nullptr;
  DeviceClocks clocks;
  const bool ready = library != nullptr && find(library, "nvmlInit_v2", start) &&
                     find(library, "nvmlDeviceGetHandleByPciBusId_v2", by_bus) &&
                     find(library, "nvmlDeviceGetClockInfo", clock) &&
                     find(library, "nvmlDeviceGetPowerUsage", power) && start() == 0 &&
                     cudaDeviceGetPCIBusId(bus, sizeof bus, index) == cudaSuccess &&
                     by_bus(bus, &device) == 0;
  unsigned value = 0;
  if (ready && clock(device, kSm, &value) == 0) clocks.sm_mhz = static_cast<int>(value);
  if (ready && clock(device, kMemory, &value) == 0) clocks.memory_mhz = static_cast<int>(value);
  if (ready && power(device, &value) == 0) clocks.power_watts = static_cast<int>(value / 1000);
  return clocks;
}

namespace {

DeviceInfo asked_info(int index) {
  DeviceInfo info;
  info.kind = "cuda";
  int driver = 0, runtime = 0, major = 0, minor = 0;
  cudaDeviceProp properties{};
  if (cudaDriverGetVersion(&driver) != cudaSuccess ||
      cudaRuntimeGetVersion(&runtime) != cudaSuccess ||
      cudaGetDeviceProperties(&properties, index) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return info;
  }
  info.name = properties.name;
  info.driver = driver_version();
  if (info.driver.empty()) info.driver = "CUDA " + cuda_version(driver);
  info.cuda = cuda_version(runtime);
  info.compute_capability = 10 * major + minor;
  const int nccl = nccl_number();
  info.nccl = nccl_version(nccl);
  info.copy_engines_off = copy_engines_are_off({.nccl = nccl, .cuda = driver},
                                               [](const char* name) { return std::getenv(name); });
  info.cudnn = cudnn_version();
  info.cudnn_frontend = cudnn_frontend_version();
  info.cublas = cublas_version();
  info.nvtx = nvtx_version();
  return info;
}

}  // namespace

DeviceInfo cuda_device_info(int index) {
  static std::map<int, DeviceInfo> known;
  DeviceInfo& info = known[index];
  if (info.name.empty()) info = asked_info(index);
  return info;
}

}  // namespace lockstep
