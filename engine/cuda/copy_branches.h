// Keeps the pinned copies of a graph on branches of their own.
//
// The driver gives each branch of a graph a channel of the GPU, and lets a branch go on with
// whatever was captured first behind its last op. Where compute waits for a copy back before the
// next one is captured, compute would go on in the copies' channel and the next copies get a new
// one: a channel more for each microbatch. All of them wait from the begin of a launch, and
// channels that wait slow every copy of pinned memory: on an H200 two do not, three leave 50 GB/s
// of 55, four or more 48. An empty node behind each copy is captured first, and the next copy goes
// on behind that.
#pragma once

#include <cuda_runtime.h>

#include <set>
#include <vector>

#include "engine/device/copy_clock.h"

namespace lockstep {

class CopyBranches {
 public:
  void copied(cudaStream_t stream) {  // During a capture.
    copied_.insert(stream);
    clock_.copied(stream);
  }
  // If copies precede the event, puts an empty node behind them, to which later captures on the
  // stream attach. Work that waits for the event waits for the copies only.
  void recorded(cudaStream_t stream, cudaEvent_t event);
  void waited(cudaStream_t stream, cudaEvent_t event) { clock_.waited(stream, event); }
  // Called before a capture ends or is abandoned. Removes the empty nodes that nothing follows, and
  // returns whether all copies before such nodes were joined. The driver does not check it: it
  // exempts whatever was removed from a stream's end.
  [[nodiscard]] bool end_capture(cudaStream_t stream);

 private:
  struct Tail {
    cudaStream_t stream;
    unsigned long long capture;
    cudaGraphNode_t empty;
    std::vector<cudaGraphNode_t> before;
  };
  std::set<cudaStream_t> copied_;
  std::vector<Tail> tails_;
  CopyClock clock_;
};

}  // namespace lockstep
