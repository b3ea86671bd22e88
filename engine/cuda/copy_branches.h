// Keeps the pinned copies of a graph on branches of their own.
//
// The driver gives each branch of a graph a channel of the GPU, and lets a branch go on with whatever was captured
// first behind its last op. Where compute waits for a copy back before the next one is captured, compute would go on in
// the copies' channel and the next copies get a new one: a channel more for each microbatch. All of them wait from the
// begin of a launch, and channels that wait slow every copy of pinned memory: on an H200 two do not, three leave 50
// GB/s of 55, four or more 48. An empty node behind each copy is captured first, and the next copy goes on behind that.
#pragma once

#include <cuda_runtime.h>

#include <set>
#include <vector>

namespace lockstep {

class CopyBranches {
 public:
  void copied(cudaStream_t stream) { copied_.insert(stream); }  // During a capture.
  // Where copies precede the event, what is captured next on the stream comes behind an empty node. What waits for the
  // event waits for the copies alone.
  void recorded(cudaStream_t stream);
  // Before a capture ends or is given up: takes back the empty nodes that nothing came behind, where what they stand
  // behind was joined. Where it was not, they stay the end of their stream, for which the driver refuses the capture.
  void end_capture(cudaStream_t stream);

 private:
  struct Tail {
    cudaStream_t stream;
    unsigned long long capture;
    cudaGraphNode_t empty;
    std::vector<cudaGraphNode_t> before;
  };
  std::set<cudaStream_t> copied_;
  std::vector<Tail> tails_;
};

}  // namespace lockstep
