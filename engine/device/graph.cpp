// Captures and the graphs that come of them.
#include "engine/device/device.h"
#include "kernels/core/require.h"

namespace lockstep {

void Stream::begin_capture() const {
  require(!device_->record_only_, "no capture during a dry run");
  if (device_->capturing_ && device_->capture_origin_ != id_) {
    throw DeviceError("cudaErrorIllegalState",
                      "begin_capture: another capture is under way on this device");
  }
  device_->backend_->begin_capture(handle_.get());
  device_->capturing_ = std::make_shared<Ledger>();
  device_->capture_origin_ = id_;
  ++device_->recordings_;
  device_->tell(BeginCaptureCall{}, id_);
}

Graph Stream::end_capture() const {
  if (!device_->capturing_ || device_->capture_origin_ != id_) {
    // Throws: nothing was begun on this stream.
    BackendGraph* graph = device_->backend_->end_capture(handle_.get());
    device_->backend_->destroy_graph(graph);
    throw DeviceError("cudaErrorIllegalState",
                      "end_capture: the capture was not begun at this device");
  }
  BackendGraph* handle = nullptr;
  try {
    handle = device_->backend_->end_capture(handle_.get());
  } catch (...) {
    abort_capture();
    throw;
  }
  Graph graph(*device_->backend_, handle, device_->graphs_++,
              std::exchange(device_->capturing_, nullptr));
  device_->tell(EndCaptureCall{graph.id_, graph.ledger_}, id_);
  return graph;
}

void Stream::abort_capture() const noexcept {
  try {
    if (device_->backend_->capture_status(handle_.get()) != CaptureStatus::none) {
      device_->backend_->destroy_graph(device_->backend_->end_capture(handle_.get()));
    }
  } catch (...) {  // The capture was broken already, which is why it is given up.
  }
  if (!device_->capturing_ || device_->capture_origin_ != id_) return;
  device_->capturing_ = nullptr;
  try {
    device_->tell(AbortCaptureCall{}, id_);
  } catch (...) {
  }
}

CaptureStatus Stream::capture_status() const {
  return device_->backend_->capture_status(handle_.get());
}

}  // namespace lockstep
