// Captures and the graphs that come of them.
#include "engine/device/device.h"
#include "kernels/core/require.h"

namespace lockstep {

void Stream::begin_capture() const {
  require(!device().record_only_, "no capture during a dry run");
  if (device().capturing_ && device().capture_origin_ != id()) {
    throw DeviceError("cudaErrorIllegalState",
                      "begin_capture: another capture is under way on this device");
  }
  device().backend_->begin_capture(handle_.get());
  device().capturing_ = std::make_shared<Ledger>();
  device().capture_origin_ = id();
  ++device().recordings_;
  device().tell(BeginCaptureCall{}, id());
}

Graph Stream::end_capture() const {
  if (!device().capturing_ || device().capture_origin_ != id()) {
    // Throws: nothing was begun on this stream.
    BackendGraph* graph = device().backend_->end_capture(handle_.get());
    device().backend_->destroy_graph(graph);
    throw DeviceError("cudaErrorIllegalState",
                      "end_capture: the capture was not begun at this device");
  }
  BackendGraph* handle = nullptr;
  try {
    handle = device().backend_->end_capture(handle_.get());
  } catch (...) {
    abort_capture();
    throw;
  }
  Graph graph(device(), handle, device().graphs_++, std::exchange(device().capturing_, nullptr));
  device().tell(EndCaptureCall{graph.id(), graph.ledger_}, id());
  return graph;
}

void Stream::abort_capture() const noexcept {
  try {
    if (device().backend_->capture_status(handle_.get()) != CaptureStatus::none) {
      device().backend_->destroy_graph(device().backend_->end_capture(handle_.get()));
    }
  } catch (...) {  // The capture was broken already, which is why it is given up.
  }
  if (!device().capturing_ || device().capture_origin_ != id()) return;
  device().capturing_ = nullptr;
  try {
    device().tell(AbortCaptureCall{}, id());
  } catch (...) {
  }
}

CaptureStatus Stream::capture_status() const {
  return device().backend_->capture_status(handle_.get());
}

}  // namespace lockstep
