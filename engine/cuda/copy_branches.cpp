#include "engine/cuda/copy_branches.h"

#include <cstddef>
#include <utility>

#include "engine/cuda/call.h"

namespace lockstep {
namespace {

struct Capture {
  bool active = false;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  std::vector<cudaGraphNode_t> behind;  // The nodes that the stream's next op would follow.
};

cudaError_t ask(cudaStream_t stream, Capture& capture) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* behind = nullptr;
  const cudaGraphEdgeData* kinds = nullptr;
  std::size_t count = 0;
#if CUDART_VERSION >= 13000
  const cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &capture.id, &capture.graph,
                                                     &behind, &kinds, &count);
#else
  const cudaError_t error = cudaStreamGetCaptureInfo_v3(stream, &status, &capture.id,
                                                        &capture.graph, &behind, &kinds, &count);
#endif
  capture.active = error == cudaSuccess && status == cudaStreamCaptureStatusActive;
  if (capture.active) capture.behind.assign(behind, behind + count);
  return error;
}

cudaError_t go_on_behind(cudaStream_t stream, std::vector<cudaGraphNode_t>& nodes) {
#if CUDART_VERSION >= 13000
  return cudaStreamUpdateCaptureDependencies(stream, nodes.data(), nullptr, nodes.size(),
                                             cudaStreamSetCaptureDependencies);
#else
  return cudaStreamUpdateCaptureDependencies(stream, nodes.data(), nodes.size(),
                                             cudaStreamSetCaptureDependencies);
#endif
}

}  // namespace

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
