#include "harness/ranks/exchange_waits.h"

#include <string_view>

namespace lockstep {

BackendStream* ExchangeWaits::create_stream(const char* name) {
  BackendStream* const stream = ForwardingBackend::create_stream(name);
  const std::string_view named = name;
  if (named == "compute") compute_.insert(stream);
  if (named == "expert rows") exchanges_.insert(stream);
  return stream;
}

// Another stream may get its handle.
void ExchangeWaits::destroy_stream(BackendStream* stream) noexcept {
  compute_.erase(stream);
  exchanges_.erase(stream);
  ForwardingBackend::destroy_stream(stream);
}

void ExchangeWaits::record(BackendStream* stream, BackendEvent* event, bool external) {
  recorded_on_[event] = stream;
  ForwardingBackend::record(stream, event, external);
}

void ExchangeWaits::wait(BackendStream* stream, BackendEvent* event, bool external) {
  const bool timed = is_timed(stream, event, external);
  if (timed) stopwatch_->begin(stream);
  ForwardingBackend::wait(stream, event, external);
  if (timed) stopwatch_->end(stream);
}

bool ExchangeWaits::is_timed(BackendStream* stream, BackendEvent* event, bool external) {
  if (!is_on || external || !compute_.contains(stream)) return false;
  const auto recorded = recorded_on_.find(event);
  return recorded != recorded_on_.end() && exchanges_.contains(recorded->second) &&
         capture_status(stream) == CaptureStatus::none;
}

}  // namespace lockstep
