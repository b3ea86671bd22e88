// cuDNN's attention on this GPU, planned before it runs, so that eager runs and captures use the
// same plans.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/ops/cudnn_attention.h"

struct CUstream_st;

namespace lockstep {

// Returns the version of the headers that this object was built with, or "" if it was built without
// them; then every call below throws.
std::string cudnn_frontend_version();

// Plans belong to the process and to the GPU of the calling thread. A call throws
// std::runtime_error if the library is absent, refuses the shape (what() says why), or has no plan
// for it. There is no fallback.
class CudnnPlans {
 public:
  // Must not be called during a capture.
  static void plan(const CudnnAttentionForward& op);
  static void plan(const CudnnAttentionBackward& op);
  // Returns the workspace of planned ops: the maximum over their calls, as the library reports it.
  static std::int64_t workspace_bytes(const CudnnAttentionForward& op);
  static std::int64_t workspace_bytes(const CudnnAttentionBackward& op);
  // Writes the rows of documents; padding rows keep their values.
  static void run(CUstream_st* stream, const CudnnAttentionForward& op);
  static void run(CUstream_st* stream, const CudnnAttentionBackward& op);
};

}  // namespace lockstep
