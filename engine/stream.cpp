#include "engine/device.h"
#include "engine/log_uniform.h"
#include "kernels/contract.h"
#include "kernels/require.h"

namespace lockstep {

Stream::Stream(Device& device, const char* name)
    : device_(&device),
      handle_(device.backend_->create_stream(name)),
      id_(device.streams_++),
      most_delay_(device.most_delay(name)) {
  device.observer_->on_create_stream(id_, name);
}

Stream::Stream(Stream&& from) noexcept
    : device_(from.device_),
      handle_(std::exchange(from.handle_, nullptr)),
      id_(from.id_),
      most_delay_(from.most_delay_) {}

Stream& Stream::operator=(Stream from) noexcept {
  std::swap(device_, from.device_);
  std::swap(handle_, from.handle_);
  std::swap(id_, from.id_);
  std::swap(most_delay_, from.most_delay_);
  return *this;
}

Stream::~Stream() {
  if (handle_) device_->backend_->destroy_stream(handle_);
}

// A wait may be what makes the stream part of the capture, so this is asked after the backend took the call.
void Stream::note(LedgerEntry entry) const {
  if (!device_->capturing_) return;
  if (device_->backend_->capture_status(handle_) != CaptureStatus::none) device_->capturing_->append(std::move(entry));
}

void Stream::delay() const {
  if (device_->pressure_.delays.empty()) return;
  const bool captured = device_->capturing_ && device_->backend_->capture_status(handle_) != CaptureStatus::none;
  const std::int64_t most = captured ? device_->most_delay("graph") : most_delay_;
  if (most == 0) return;
  device_->delay_state_ += 0x9E3779B97F4A7C15u;
  device_->backend_->delay(handle_, log_uniform(mix64(device_->delay_state_), most));
  ++(captured ? device_->capturing_->delays : device_->delays);
}

void Stream::enqueue(const Submission& submission) const {
  const LedgerEntry::Kind kind = LedgerEntry::Kind::op;
  if (Ledger* dry = device_->record_only_) {
    return dry->append({.kind = kind, .stream = id_, .place = device_->place, .op = submission});
  }
  device_->observer_->on_submit(id_, submission, device_->place);
  delay();
  device_->backend_->submit(handle_, submission);
  if (device_->capturing_ && device_->backend_->capture_status(handle_) != CaptureStatus::none) {
    device_->capturing_->append({.kind = kind, .stream = id_, .place = device_->place, .op = submission});
  } else {
    ++device_->ops;
    device_->bytes_poisoned += bytes_poisoned(submission);
  }
}

void Stream::copy(void* to, const void* from, std::size_t bytes, CopyKind kind) const {
  const LedgerEntry entry{.kind = LedgerEntry::Kind::copy,
                          .stream = id_,
                          .place = device_->place,
                          .op = {},
                          .to = to,
                          .from = from,
                          .bytes = bytes};
  if (device_->record_only_) return device_->record_only_->append(entry);
  device_->observer_->on_copy(id_, to, from, bytes, kind, device_->place);
  delay();
  device_->backend_->copy(handle_, to, from, bytes, kind);
  note(entry);
}

void Stream::fill(void* to, std::uint8_t byte, std::size_t bytes) const {
  const LedgerEntry entry{.kind = LedgerEntry::Kind::fill,
                          .stream = id_,
                          .place = device_->place,
                          .op = {},
                          .to = to,
                          .bytes = bytes,
                          .byte = byte};
  if (device_->record_only_) return device_->record_only_->append(entry);
  device_->observer_->on_fill(id_, to, bytes, device_->place);
  delay();
  device_->backend_->fill(handle_, to, byte, bytes);
  note(entry);
}

void Stream::record(const Event& event, bool external) const {
  const LedgerEntry entry{.kind = LedgerEntry::Kind::record,
                          .stream = id_,
                          .place = device_->place,
                          .op = {},
                          .event = event.id_,
                          .external = external};
  if (device_->record_only_) return device_->record_only_->append(entry);
  device_->observer_->on_record(id_, event.id_, external);
  device_->backend_->record(handle_, event.handle_, external);
  note(entry);
}

void Stream::wait(const Event& event, bool external) const {
  const LedgerEntry entry{.kind = LedgerEntry::Kind::wait,
                          .stream = id_,
                          .place = device_->place,
                          .op = {},
                          .event = event.id_,
                          .external = external};
  if (device_->record_only_) return device_->record_only_->append(entry);
  device_->observer_->on_wait(id_, event.id_, external);
  device_->backend_->wait(handle_, event.handle_, external);
  note(entry);
}

void Stream::launch(const Graph& graph) const {
  require(!device_->record_only_, "no launch during a dry run");
  device_->observer_->on_launch(id_, graph.id_, *graph.ledger_, device_->place);
  delay();
  device_->backend_->launch(graph.handle_, handle_);
  device_->ops += graph.ledger_->ops();
  device_->delays += graph.ledger_->delays;
  device_->bytes_poisoned += graph.ledger_->bytes_poisoned();
}

void Stream::synchronize() const {
  require(!device_->record_only_, "no host synchronisation during a dry run");
  device_->observer_->on_synchronize_stream(id_);
  ++device_->host_syncs;
  device_->backend_->synchronize(handle_);
}

bool Stream::finished() const {
  require(!device_->record_only_, "no query during a dry run");
  const bool finished = device_->backend_->finished(handle_);
  if (finished) device_->observer_->on_found_finished_stream(id_);
  return finished;
}

}  // namespace lockstep
