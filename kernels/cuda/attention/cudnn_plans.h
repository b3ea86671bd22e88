// cuDNN's attention on this GPU, planned before it runs: the same plans in eager runs and captures.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/ops/cudnn_attention.h"

struct CUstream_st;

namespace lockstep {

// Version of the headers that this object was built with; "" where it was built without: then every
// call below throws.
std::string cudnn_frontend_version();

// Plans belong to the process and to a GPU, that of the calling thread. A call throws
// std::runtime_error where the library is absent, refuses the shape (what() says why), or was never
// asked to plan it. Nothing else takes its place.
class CudnnPlans {
 public:
  // Not during a capture.
  static void plan(const CudnnAttentionForward& op);
  static void plan(const CudnnAttentionBackward& op);
  // The workspace of planned ops: the largest of their calls, as the library says it.
  static std::int64_t workspace_bytes(const CudnnAttentionForward& op);
  static std::int64_t workspace_bytes(const CudnnAttentionBackward& op);
  // Writes the rows of documents; padding rows stay as they are.
  static void run(CUstream_st* stream, const CudnnAttentionForward& op);
  static void run(CUstream_st* stream, const CudnnAttentionBackward& op);
};

}  // namespace lockstep
