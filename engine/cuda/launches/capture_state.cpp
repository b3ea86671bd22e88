#include "engine/cuda/launches/capture_state.h"

#include <cstddef>

namespace lockstep {

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

}  // namespace lockstep
