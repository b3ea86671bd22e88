#include "engine/sim/capture.h"

#include <algorithm>
#include <utility>

#include "kernels/core/at.h"

namespace lockstep {
namespace {

// Every fork must have come back: each node leads to one that the origin's next item would follow.
bool is_joined(const SimCapture& capture) {
  const std::vector<SimNode>& nodes = capture.graph.nodes;
  std::vector<bool> reached(nodes.size());
  for (const int node : capture.origin->tail) at(reached, node) = true;
  for (std::size_t i = nodes.size(); i-- > 0;) {
    if (!reached[i]) return false;
    for (const int before : nodes[i].before) at(reached, before) = true;
  }
  return true;
}

bool is_live(const SimCapture& capture) { return !capture.members.empty() && !capture.invalidated; }

}  // namespace

void SimCaptures::refuse_over(const SimEvent& event, const char* call) const {
  if (event.capture && !is_live(*event.capture)) throw DeviceError("cudaErrorInvalidValue", call);
}

void SimCaptures::refuse_captured(const SimEvent& event, const char* call) {
  if (!event.capture) return;
  refuse_over(event, call);
  event.capture->invalidated = true;
  throw DeviceError("cudaErrorCapturedEvent", call);
}

void SimCaptures::begin(BackendStream& stream) {
  if (stream.capture)
    throw DeviceError("cudaErrorIllegalState", "begin_capture on a stream that is capturing");
  auto capture = std::make_shared<SimCapture>();
  capture->thread = std::this_thread::get_id();
  capture->origin = &stream;
  join(stream, capture);
  open_.push_back(std::move(capture));
}

void SimCaptures::join(BackendStream& stream, const std::shared_ptr<SimCapture>& capture) {
  stream.capture = capture;
  stream.lane = capture->graph.lanes++;
  stream.tail.clear();
  capture->members.push_back(&stream);
}

void SimCaptures::close(SimCapture& capture) noexcept {
  for (BackendStream* member : capture.members) {
    member->capture = nullptr;
    member->tail.clear();
  }
  capture.members.clear();
  capture.graph = {};  // Its nodes may hold events that hold the capture.
  std::erase_if(open_, [&capture](const auto& open) { return open.get() == &capture; });
}

std::unique_ptr<SimGraph> SimCaptures::end(BackendStream& stream) {
  if (!stream.capture)
    throw DeviceError("cudaErrorIllegalState", "end_capture on a stream that is not capturing");
  const std::shared_ptr<SimCapture> capture = stream.capture;
  if (capture->origin != &stream) {
    capture->invalidated = true;
    throw DeviceError("cudaErrorStreamCaptureUnmatched",
                      "end_capture on a stream where it was not begun");
  }
  const bool joined = is_joined(*capture);
  auto graph = std::make_unique<SimGraph>(std::move(capture->graph));
  close(*capture);
  if (capture->thread != std::this_thread::get_id()) {
    throw DeviceError("cudaErrorStreamCaptureWrongThread", "end_capture");
  }
  if (capture->invalidated) throw DeviceError("cudaErrorStreamCaptureInvalidated", "end_capture");
  if (!joined) throw DeviceError("cudaErrorStreamCaptureUnjoined", "end_capture");
  for (std::size_t i = 0; i < graph->nodes.size(); ++i) {
    for (const int before : graph->nodes[i].before) {
      at(graph->nodes, before).after.push_back(static_cast<int>(i));
    }
  }
  return graph;
}

bool SimCaptures::breaks_unsafe() noexcept {
  bool found = false;
  for (const auto& capture : open_) {
    if (capture->thread != std::this_thread::get_id()) continue;
    capture->invalidated = true;
    found = true;
  }
  return found;
}

void SimCaptures::refuse_unsafe(const char* call) {
  if (!open_.empty() && breaks_unsafe())
    throw DeviceError("cudaErrorStreamCaptureUnsupported", call);
}

void SimCaptures::refuse_on(BackendStream& stream, const char* call) {
  if (!stream.capture) return;
  stream.capture->invalidated = true;
  throw DeviceError("cudaErrorStreamCaptureUnsupported", call);
}

void SimCaptures::forget(BackendStream& stream) noexcept {
  if (!stream.capture) return;
  SimCapture& capture = *stream.capture;
  if (capture.origin == &stream) return close(capture);
  std::erase(capture.members, &stream);
  stream.capture = nullptr;
}

void SimCaptures::require_valid(const BackendStream& stream, const char* call) const {
  if (stream.capture->invalidated) throw DeviceError("cudaErrorStreamCaptureInvalidated", call);
}

void SimCaptures::add(BackendStream& stream, SimWork work, const char* call) {
  require_valid(stream, call);
  SimGraph& graph = stream.capture->graph;
  graph.external |= std::holds_alternative<SimExternalRecord>(work) ||
                    std::holds_alternative<SimExternalWait>(work);
  graph.calls |= std::holds_alternative<SimCall>(work);
  const int node = static_cast<int>(graph.nodes.size());
  const int number = node - graph.delays;
  graph.delays += std::holds_alternative<SimDelay>(work);
  graph.nodes.push_back(
      {std::move(work), stream.lane, stream.id, number, std::exchange(stream.tail, {node}), {}});
}

void SimCaptures::record(BackendStream& stream, SimEvent& event) {
  require_valid(stream, "record");
  event.capture = stream.capture;
  event.nodes = stream.tail;
}

void SimCaptures::wait_external(BackendStream& stream, const std::shared_ptr<SimEvent>& event) {
  require_valid(stream, "wait");
  if (event->capture && !is_live(*event->capture)) stream.capture->invalidated = true;
  refuse_over(*event, "wait");
  add(stream, SimExternalWait{event}, "wait");
}

bool SimCaptures::wait(BackendStream& stream, const SimEvent& event) {
  if (stream.capture) require_valid(stream, "wait");
  if (!event.capture && !event.latest) return true;  // Never recorded: nothing to wait for.
  if (!event.capture) {
    if (!stream.capture) return false;
    stream.capture->invalidated = true;
    throw DeviceError("cudaErrorStreamCaptureIsolation",
                      "wait in a capture for an event recorded outside it");
  }
  if (!is_live(*event.capture)) {
    if (stream.capture) stream.capture->invalidated = true;
    throw DeviceError("cudaErrorInvalidValue", "wait for an event of a capture that is over");
  }
  if (stream.capture && stream.capture != event.capture) {
    stream.capture->invalidated = event.capture->invalidated = true;
    throw DeviceError("cudaErrorStreamCaptureMerge", "wait for an event of another capture");
  }
  if (!stream.capture) join(stream, event.capture);
  std::vector<int> both;
  std::set_union(stream.tail.begin(), stream.tail.end(), event.nodes.begin(), event.nodes.end(),
                 std::back_inserter(both));
  stream.tail = std::move(both);
  return true;
}

}  // namespace lockstep
