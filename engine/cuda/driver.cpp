#include "engine/cuda/driver.h"

#include <dlfcn.h>

namespace lockstep {

const CudaDriver& cuda_driver() {
  static const CudaDriver found = [] {
    CudaDriver driver{};
    void* const file = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // Never closed.
    const auto find = [&]<class Function>(Function& function, const char* name) {
      if (file != nullptr) function = reinterpret_cast<Function>(dlsym(file, name));
    };
    find(driver.wait_value, "cuStreamWaitValue32_v2");
    find(driver.write_value, "cuStreamWriteValue32_v2");
    find(driver.address_range, "cuMemGetAddressRange_v2");
    return driver;
  }();
  return found;
}

}  // namespace lockstep
