// libcudnn, opened at run time, and a handle for each GPU.
#pragma once

#if LOCKSTEP_HAS_CUDNN
#include <cudnn.h>

#include <string>

namespace lockstep {

// Opens the library and returns its version, such as "cuDNN 9.14.0". Throws std::runtime_error with
// the reason if that fails. It is never closed, because it has threads.
std::string open_cudnn();

// Returns the handle of the calling thread's GPU. The first call creates it and must not be in a
// capture.
cudnnHandle_t cudnn_handle();

}  // namespace lockstep
#endif
