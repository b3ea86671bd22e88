// Whether the last of some calls on streams is done.
#pragma once

#include <cuda_runtime.h>

#include "engine/cuda/call.h"

namespace lockstep {

class LastCall {
 public:
  LastCall() {
    cuda_call(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  LastCall(const LastCall&) = delete;
  ~LastCall() { static_cast<void>(cudaEventDestroy(done_)); }
  // It is all that is on the stream now.
  void record(BackendStream* stream) {
    cuda_call(cudaEventRecord(done_, cuda(stream)), "cudaEventRecord");
  }
  bool busy() const {
    const bool busy = cudaEventQuery(done_) == cudaErrorNotReady;
    // Clears the query's status, which would look like a failed launch of this thread.
    if (busy) static_cast<void>(cudaGetLastError());
    return busy;
  }

 private:
  cudaEvent_t done_ = nullptr;
};

}  // namespace lockstep
