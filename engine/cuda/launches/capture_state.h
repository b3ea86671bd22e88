// Asks and sets the nodes that a stream's next op follows while a graph is captured.
#pragma once

#include <cuda_runtime.h>

#include <vector>

namespace lockstep {

struct Capture {
  bool active = false;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  std::vector<cudaGraphNode_t> behind;  // The nodes that the stream's next op would follow.
};

// Returns CUDA's error of the question. A capture that broke is not active.
cudaError_t ask(cudaStream_t stream, Capture& capture);

// Has the stream's next op follow these nodes and no others.
cudaError_t go_on_behind(cudaStream_t stream, std::vector<cudaGraphNode_t>& nodes);

}  // namespace lockstep
