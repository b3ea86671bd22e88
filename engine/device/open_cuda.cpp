// Finds the CUDA object and opens a device in it.
#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "engine/device/cuda_object.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

constexpr char kName[] = "liblockstep_cuda.so";

std::filesystem::path& named_object() {
  static std::filesystem::path path;
  return path;
}

std::vector<std::filesystem::path> candidates() {
  if (!named_object().empty()) return {named_object()};
  std::vector<std::filesystem::path> list;
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  const std::filesystem::path here = failed ? std::filesystem::path(".") : program.parent_path();
  // Beside the program, in an installed tree, and in a build tree, whose programs lie in folders of
  // one or two levels.
  for (const char* folder : {".", "../lib", "lib", "../../lib"})
    list.push_back(here / folder / kName);
  return list;
}

// Null when there is none, with the reason. The object stays open: its kernels are registered once
// a process.
void* object(std::string& reason) {
  static std::string why;
  static void* const handle = [] {
    void* opened = nullptr;
    for (const std::filesystem::path& path : candidates()) {
      std::error_code failed;
      const bool exists = std::filesystem::exists(path, failed);
      if (exists && !failed && (opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))) break;
      why = exists ? dlerror()
                   : "no " + path.filename().string() + " at " + path.parent_path().string();
      if (exists) break;  // One that is there but does not load is not to be hidden by another.
    }
    return opened;
  }();
  reason = why;
  return handle;
}

void raise(const char* code, const char* call, const std::source_location* at) {
  throw DeviceError(code, call, *at);
}

}  // namespace

void use_cuda_object(const std::string& path) { named_object() = std::filesystem::absolute(path); }

std::unique_ptr<Backend> open_cuda(int index) {
  std::string reason;
  void* handle = object(reason);
  if (!handle) throw DeviceError("cudaErrorNoDevice", "open the CUDA object (" + reason + ")");
  auto* open = reinterpret_cast<CudaOpen*>(dlsym(handle, kCudaOpen));
  if (!open) throw DeviceError("cudaErrorSharedObjectSymbolNotFound", kCudaOpen);
  // The object is told again each time, and keeps a pointer to the program.
  static std::string fault;
  static CudaProgram program{&raise, nullptr};
  fault = planted_fault();
  program.planted_fault = fault.c_str();
  return std::unique_ptr<Backend>(open(&program, index));
}

std::unique_ptr<StreamStopwatch> open_cuda_stopwatch() {
  std::string reason;
  void* handle = object(reason);
  auto* make = handle ? reinterpret_cast<CudaStopwatch*>(dlsym(handle, kCudaStopwatch)) : nullptr;
  if (!make) throw DeviceError("cudaErrorSharedObjectSymbolNotFound", kCudaStopwatch);
  return std::unique_ptr<StreamStopwatch>(make());
}

std::vector<DeviceInfo> cuda_devices() noexcept try {
  std::vector<DeviceInfo> list;
  std::string reason;
  void* handle = object(reason);
  auto* devices = handle ? reinterpret_cast<CudaDevices*>(dlsym(handle, kCudaDevices)) : nullptr;
  if (devices) devices(&list);
  return list;
} catch (...) {
  return {};
}

}  // namespace lockstep
