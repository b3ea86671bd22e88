// Short ops of one type in a row, such as the updates of all weights, which eager runs launch
// together. They wait until a call comes that is no such op.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "kernels/cuda/common/beside.h"
#include "kernels/submission/submission.h"

namespace lockstep {

class WaitingOps {
 public:
  bool empty() const { return ops_.empty(); }
  // Returns whether the op waits now, for which those that it cannot go with are launched.
  bool take(cudaStream_t stream, const Submission& op);
  // Launches all that wait. Throws std::runtime_error with CUDA's name of the error.
  void launch();

 private:
  static constexpr std::size_t kMost = 32;  // One kernel takes no more.
  cudaStream_t stream_ = nullptr;
  std::vector<Submission> ops_;
  std::vector<Touched> read_, written_;
};

}  // namespace lockstep
