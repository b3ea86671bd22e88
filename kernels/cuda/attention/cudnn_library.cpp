#include "kernels/cuda/attention/cudnn_library.h"

#if LOCKSTEP_HAS_CUDNN
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_map>

// The functions of the library alone, without the graph API, which takes 25 s to compile. It does
// not include the standard headers that it needs.
#include <cudnn_frontend_shim.h>

// The headers call the library through this handle.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace lockstep {
namespace {

constexpr const char* kFolders[] = {"", "/usr/local/cuda/lib64/"};

// Returns the name of the library that was opened, or "".
std::string open_first(std::initializer_list<const char*> names, void** opened) {
  for (const char* name : names) {
    for (const char* folder : kFolders) {
      const std::string path = std::string(folder) + name;
      *opened = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
      if (*opened != nullptr) return path;
    }
  }
  return "";
}

std::string open_all() {
  void* file = nullptr;
  if (open_first({"libcudnn.so.9"}, &file).empty())
    throw std::runtime_error("libcudnn.so.9 is not found");
  cudnn_frontend::cudnn_dlhandle = file;
  // The frontend headers need a CUDA runtime for the GPU's properties, and the library needs NVRTC
  // to compile.
  void* runtime = nullptr;
  const std::string name = open_first({"libcudart.so.13", "libcudart.so.12"}, &runtime);
  if (name.empty()) throw std::runtime_error("cuDNN needs libcudart.so, which is not found");
  ::setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", name.c_str(), 0);
  open_first({"libnvrtc.so.13", "libnvrtc.so.12"}, &runtime);
  const std::size_t v = cudnn_frontend::detail::get_backend_version();
  return "cuDNN " + std::to_string(v / 10000) + "." + std::to_string(v % 10000 / 100) + "." +
         std::to_string(v % 100);
}

}  // namespace

std::string open_cudnn() {
  static const std::string version = open_all();
  return version;
}

cudnnHandle_t cudnn_handle() {
  static auto& handles =
      *new std::map<int, cudnnHandle_t>;  // Leaked, since the driver may be gone first.
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) throw std::runtime_error("cudaGetDevice");
  cudnnHandle_t& handle = handles[device];
  if (handle == nullptr) {
    const std::string version = open_cudnn();
    const cudnnStatus_t status = cudnn_frontend::detail::create_handle(&handle);
    if (status != CUDNN_STATUS_SUCCESS) {
      throw std::runtime_error(
          version + " does not start: " + cudnn_frontend::detail::get_error_string(status));
    }
  }
  return handle;
}

}  // namespace lockstep
#endif
