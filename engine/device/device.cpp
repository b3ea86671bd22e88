#include "engine/device/device.h"

#include <algorithm>

#include "engine/device/log_uniform.h"
#include "kernels/core/contract.h"
#include "kernels/core/require.h"

namespace lockstep {

Device::Device(std::unique_ptr<Backend> backend, Observer* observer, Pressure pressure, Interposer* interposer)
    : backend_(std::move(backend)),
      ranges_(backend_->profiler()),
      observer_(observer),
      pressure_(std::move(pressure)),
      delayed_(pressure_.delays.size()),
      delay_state_(pressure_.seed),
      interposer_(interposer) {
  static Observer silent;
  if (!observer_) observer_ = &silent;
  backend_->set_poison(pressure_.poison_fresh, pressure_.poison_freed);
  if (interposer_) interposer_->attached(*this);
}

Device::~Device() = default;

void Device::host_writes(const void* memory, std::size_t bytes) {
  observer_->on_host_write(memory, bytes, place);
  backend_->host_acts();
}
void Device::host_reads(const void* memory, std::size_t bytes) {
  observer_->on_host_read(memory, bytes, place);
  backend_->host_acts();
}

bool Device::concerns(const StreamDelay& delay, std::string_view stream) const {
  return delay.stream == stream && (delay.rank < 0 || delay.rank == place.rank);
}

std::int64_t Device::most_delay(std::string_view stream) const {
  std::int64_t most = 0;
  for (const StreamDelay& delay : pressure_.delays) {
    if (concerns(delay, stream)) most = std::max(most, delay.most);
  }
  return most;
}

void Device::delay(const Lane& lane) {
  if (pressure_.delays.empty()) return;
  const bool captured = capturing_ && backend_->capture_status(lane.handle) != CaptureStatus::none;
  // A launch is delayed as what its stream does; the other streams of a graph do nothing but what was captured.
  const bool forked = captured && &lane != &streams_[static_cast<std::size_t>(capture_origin_)];
  const std::int64_t most = captured ? std::max(most_delay("graph"), forked ? lane.most_delay : 0) : lane.most_delay;
  if (most == 0) return;
  for (std::size_t i = 0; i < delayed_.size(); ++i) {
    const StreamDelay& asked = pressure_.delays[i];
    const bool by_stream = (!captured || forked) && concerns(asked, lane.name);
    if (by_stream || (captured && concerns(asked, "graph"))) delayed_[i] = true;
  }
  delay_state_ += 0x9E3779B97F4A7C15u;
  backend_->delay(lane.handle, log_uniform(mix64(delay_state_), most));
  ++(captured ? capturing_->delays : delays);
}

namespace {

void make(const Exchange& exchange, BackendStream* stream, void* to, const void* from, std::size_t bytes) {
  BackendCommunicator& ranks = *exchange.ranks;
  switch (exchange.kind) {
    case CollectiveKind::all_gather:
      return ranks.all_gather(stream, to, from, bytes);
    case CollectiveKind::all_to_all:
      return ranks.all_to_all(stream, to, from, bytes);
    case CollectiveKind::reduce_scatter:
      return ranks.reduce_scatter(stream, static_cast<float*>(to), static_cast<const float*>(from), bytes);
    case CollectiveKind::all_reduce:
      return ranks.all_reduce(stream, static_cast<float*>(to), bytes);
    case CollectiveKind::meet:
    case CollectiveKind::launch:
      require(false, "meetings and launches take no turn on a stream");
  }
}

}  // namespace

void Device::perform(const LedgerEntry& call) {
  if (record_only_) return record_only_->append(call);
  ranges_.at(call.place, capturing());
  const Lane& lane = streams_[static_cast<std::size_t>(call.stream)];
  BackendStream* stream = lane.handle;
  switch (call.kind) {
    case LedgerEntry::Kind::op:
      observer_->on_submit(call.stream, *call.op, call.place);
      delay(lane);
      backend_->submit(stream, *call.op);
      break;
    case LedgerEntry::Kind::copy:
      observer_->on_copy(call.stream, call.to, call.from, call.bytes, call.copy_kind, call.place);
      delay(lane);
      backend_->copy(stream, call.to, call.from, call.bytes, call.copy_kind);
      break;
    case LedgerEntry::Kind::fill:
      observer_->on_fill(call.stream, call.to, call.bytes, call.place);
      delay(lane);
      backend_->fill(stream, call.to, call.byte, call.bytes);
      break;
    case LedgerEntry::Kind::record:
      observer_->on_record(call.stream, call.event, call.external);
      backend_->record(stream, events_[static_cast<std::size_t>(call.event)], call.external);
      break;
    case LedgerEntry::Kind::wait:
      observer_->on_wait(call.stream, call.event, call.external);
      backend_->wait(stream, events_[static_cast<std::size_t>(call.event)], call.external);
      break;
    case LedgerEntry::Kind::exchange:
      for (const Effect& effect : effects_of(call)) {
        if (effect.from == nullptr) {
          observer_->on_fill(call.stream, effect.to, effect.bytes, call.place);
        } else {
          observer_->on_copy(call.stream, effect.to, effect.from, effect.bytes, CopyKind::device_to_device, call.place);
        }
      }
      delay(lane);
      make(*call.exchange, stream, call.to, call.from, call.bytes);
      break;
  }
  // A wait may be what makes the stream part of the capture, so this is asked after the backend took the call.
  if (capturing_ && backend_->capture_status(stream) != CaptureStatus::none) {
    capturing_->append(call);
  } else {
    ops += call.kind == LedgerEntry::Kind::op;
    if (call.kind == LedgerEntry::Kind::op && call.place.recomputes()) ++ops_recomputed[call.place.rank];
    if (call.op) bytes_poisoned += lockstep::bytes_poisoned(*call.op);
  }
}

void Device::count(const Stream& stream, std::int64_t& counter) {
  if (record_only_) return;
  if (capturing_ && stream.capture_status() != CaptureStatus::none) return capturing_->counters.push_back(&counter);
  ++counter;
}

void* Device::allocate(std::size_t bytes, bool pinned, BackendCommunicator* ranks) {
  require(!record_only_, "no allocation during a dry run");
  require(ranks == nullptr || !pinned, "what is exchanged lies on the device");
  if (interposer_) {
    if (void* shared = interposer_->shared_memory(bytes, pinned)) return shared;
  }
  void* memory = pinned             ? backend_->allocate_pinned(bytes)
                 : ranks != nullptr ? backend_->allocate_shared(*ranks, bytes)
                                    : backend_->allocate(bytes);
  if (memory) observer_->on_allocate(memory, bytes, pinned);
  if (memory && interposer_) interposer_->allocated(memory, bytes, pinned);
  return memory;
}

void Device::release(void* memory, bool pinned) noexcept {
  if (!memory || (interposer_ && !interposer_->releases(memory))) return;
  try {
    observer_->on_release(memory, pinned);
  } catch (...) {  // Called by destructors; a judge that must stop the run has other calls.
  }
  pinned ? backend_->release_pinned(memory) : backend_->release(memory);
}

Device::RecordOnly::RecordOnly(Device& device, Ledger& ledger) : device_(device) {
  require(!device.record_only_, "one dry run at a time");
  require(!device.capturing_, "no dry run during a capture");
  device.record_only_ = &ledger;
  ++device.recordings_;
}

Device::RecordOnly::~RecordOnly() { device_.record_only_ = nullptr; }

}  // namespace lockstep
