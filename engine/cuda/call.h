// The result of a CUDA call: success, or an error that the program throws.
#pragma once

#include <cuda_runtime.h>

#include <source_location>

#include "engine/device/cuda_object.h"

namespace lockstep {

struct BackendStream;

inline cudaStream_t cuda(BackendStream* stream) { return reinterpret_cast<cudaStream_t>(stream); }

// Set once by the entry, before any call.
inline const CudaProgram* cuda_program = nullptr;

[[noreturn]] inline void cuda_raise(const char* code, const char* call,
                                    const std::source_location& at) {
  cuda_program->raise(code, call, &at);
  __builtin_unreachable();
}

inline void cuda_call(cudaError_t error, const char* call,
                      const std::source_location& at = std::source_location::current()) {
  if (error == cudaSuccess) return;
  // It was reported here; the next launch must not report it again.
  static_cast<void>(cudaGetLastError());
  cuda_raise(cudaGetErrorName(error), call, at);
}

}  // namespace lockstep
