#include "engine/cuda/copy_branches.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
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
  const cudaGraphEdgeData* kinds = nullptr;
  std::size_t count = 0;
#if CUDART_VERSION >= 13000
  const cudaError_t error =
      cudaStreamGetCaptureInfo(stream, &status, &capture.id, &capture.graph, &behind, &kinds, &count);
#else
  const cudaError_t error =
      cudaStreamGetCaptureInfo_v3(stream, &status, &capture.id, &capture.graph, &behind, &kinds, &count);
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

// These nodes and whatever they come behind; nothing if the edges cannot be read.
std::set<cudaGraphNode_t> all_before(cudaGraph_t graph, const std::vector<cudaGraphNode_t>& nodes) {
  const auto edges = [&](cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* kinds, std::size_t& count) {
#if CUDART_VERSION >= 13000
    return cudaGraphGetEdges(graph, from, to, kinds, &count);
#else
    return cudaGraphGetEdges_v2(graph, from, to, kinds, &count);
#endif
  };
  std::size_t count = 0;
  if (edges(nullptr, nullptr, nullptr, count) != cudaSuccess) return {};
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> kinds(count);  // Must be asked for where kernels are launched early.
  if (count > 0 && edges(from.data(), to.data(), kinds.data(), count) != cudaSuccess) return {};
  std::multimap<cudaGraphNode_t, cudaGraphNode_t> before;
  for (std::size_t i = 0; i < count; ++i) before.emplace(to[i], from[i]);
  std::set<cudaGraphNode_t> found;
  for (std::vector<cudaGraphNode_t> open = nodes; !open.empty();) {
    const cudaGraphNode_t node = open.back();
    open.pop_back();
    if (!found.insert(node).second) continue;
    for (auto [at, end] = before.equal_range(node); at != end; ++at) open.push_back(at->second);
  }
  return found;
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
  if (tails_.empty()) return;
  Capture ending;
  std::set<cudaGraphNode_t> joined;
  if (ask(stream, ending) == cudaSuccess && ending.active) joined = all_before(ending.graph, ending.behind);
  for (Tail& tail : std::exchange(tails_, {})) {
    Capture now;
    if (ask(tail.stream, now) != cudaSuccess || !now.active || now.id != tail.capture) continue;  // Broken.
    if (now.id != ending.id) {
      tails_.push_back(std::move(tail));
      continue;
    }
    if (std::erase(now.behind, tail.empty) == 0) continue;
    now.behind.insert(now.behind.end(), tail.before.begin(), tail.before.end());
    const bool all = joined.empty() || std::all_of(now.behind.begin(), now.behind.end(),
                                                   [&](auto node) { return joined.contains(node); });
    if (all || tail.stream == stream) {
      cuda_call(go_on_behind(tail.stream, now.behind), "cudaStreamUpdateCaptureDependencies");
    }
  }
  static_cast<void>(cudaGetLastError());  // A capture that broke is told by its end.
}

}  // namespace lockstep
