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
  std::vector<cudaGraphNode_t> behind;  // What the stream's next op would come behind.
};

cudaError_t ask(cudaStream_t stream, Capture& capture) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* behind = nullptr;
  std::size_t count = 0;
#if CUDART_VERSION >= 13000
  const cudaGraphEdgeData* edges = nullptr;
  const cudaError_t error =
      cudaStreamGetCaptureInfo(stream, &status, &capture.id, &capture.graph, &behind, &edges, &count);
#else
  const cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, &status, &capture.id, &capture.graph, &behind, &count);
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
  return cudaStreamUpdateCaptureDependencies(stream, nodes.data(), nodes.size(), cudaStreamSetCaptureDependencies);
#endif
}

}  // namespace

void CopyBranches::recorded(cudaStream_t stream) {
  if (copied_.erase(stream) == 0) return;
  Capture capture;
  cuda_call(ask(stream, capture), "cudaStreamGetCaptureInfo");
  if (!capture.active) return;
  Tail tail{stream, capture.id, nullptr, std::move(capture.behind)};
  cuda_call(cudaGraphAddEmptyNode(&tail.empty, capture.graph, tail.before.data(), tail.before.size()),
            "cudaGraphAddEmptyNode");
  std::vector<cudaGraphNode_t> only{tail.empty};
  cuda_call(go_on_behind(stream, only), "cudaStreamUpdateCaptureDependencies");
  std::erase_if(tails_, [&](const Tail& old) { return old.stream == stream; });
  tails_.push_back(std::move(tail));
}

void CopyBranches::end_capture(cudaStream_t stream) {
  copied_.clear();
  Capture ending;
  const bool known = ask(stream, ending) == cudaSuccess;
  for (Tail& tail : std::exchange(tails_, {})) {
    Capture now;
    const bool last = ask(tail.stream, now) == cudaSuccess && now.active && now.id == tail.capture;
    if (!last) continue;
    if (known && now.id != ending.id) {
      tails_.push_back(std::move(tail));
    } else if (std::erase(now.behind, tail.empty) > 0) {
      now.behind.insert(now.behind.end(), tail.before.begin(), tail.before.end());
      static_cast<void>(go_on_behind(tail.stream, now.behind));
    }
  }
  static_cast<void>(cudaGetLastError());  // A capture that broke is told by its end.
}

}  // namespace lockstep
