#include "engine/cuda/copy_branches.h"

#include <utility>

#include "engine/cuda/call.h"
#include "engine/cuda/launches/capture_state.h"

namespace lockstep {

void CopyBranches::recorded(cudaStream_t stream, cudaEvent_t event) {
  clock_.recorded(stream, event);
  if (copied_.erase(stream) == 0) return;
  Capture capture;
  cuda_call(ask(stream, capture), "cudaStreamGetCaptureInfo");
  if (!capture.active) return;
  Tail tail{stream, capture.id, nullptr, std::move(capture.behind)};
  cuda_call(
      cudaGraphAddEmptyNode(&tail.empty, capture.graph, tail.before.data(), tail.before.size()),
      "cudaGraphAddEmptyNode");
  std::vector<cudaGraphNode_t> only{tail.empty};
  cuda_call(go_on_behind(stream, only), "cudaStreamUpdateCaptureDependencies");
  std::erase_if(tails_, [&](const Tail& old) { return old.stream == stream; });
  tails_.push_back(std::move(tail));
}

bool CopyBranches::end_capture(cudaStream_t stream) {
  copied_.clear();
  Capture ending;
  if (!tails_.empty()) static_cast<void>(ask(stream, ending));
  bool joined = true;
  for (Tail& tail : std::exchange(tails_, {})) {
    Capture now;
    // Broken.
    if (ask(tail.stream, now) != cudaSuccess || !now.active || now.id != tail.capture) continue;
    if (now.id != ending.id) {
      tails_.push_back(std::move(tail));
      continue;
    }
    joined = joined && clock_.joined(tail.stream, stream);
    if (std::erase(now.behind, tail.empty) == 0) continue;
    now.behind.insert(now.behind.end(), tail.before.begin(), tail.before.end());
    cuda_call(go_on_behind(tail.stream, now.behind), "cudaStreamUpdateCaptureDependencies");
  }
  if (tails_.empty()) clock_.clear();
  static_cast<void>(cudaGetLastError());  // A capture that broke is told by its end.
  return joined;
}

}  // namespace lockstep
