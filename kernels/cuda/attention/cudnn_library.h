// libcudnn, opened at run time, and a handle for each GPU.
#pragma once

#if LOCKSTEP_HAS_CUDNN
#include <cudnn.h>

#include <string>

namespace lockstep {

// "cuDNN 9.14.0": throws std::runtime_error with the reason where it is not found. Kept open: it
// has threads.
std::string open_cudnn();

// The handle of the calling thread's GPU; made at the first call, which is not allowed in a
// capture.
cudnnHandle_t cudnn_handle();

}  // namespace lockstep
#endif
