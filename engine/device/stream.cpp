#include "engine/device/device.h"
#include "kernels/core/require.h"

namespace lockstep {

Stream::Stream(Device& device, const char* name)
    : device_(&device),
      handle_(*device.backend_, device.backend_->create_stream(name)),
      id_(static_cast<int>(device.streams_.size())) {
  device.streams_.push_back({handle_.get(), device.most_delay(name), name});
  device.observer_->on_create_stream(id_, name);
  if (device.interposer_) device.interposer_->created_stream(id_, name);
}

const std::string& Stream::name() const { return device_->streams_[static_cast<std::size_t>(id_)].name; }

void Stream::ask(LedgerEntry call) const {
  call.stream = id_;
  call.place = device_->place;
  if (!device_->interposer_) return device_->perform(call);
  for (const LedgerEntry& one : device_->interposer_->instead_of(call, device_->record_only_)) device_->perform(one);
}

void Stream::enqueue(const Submission& submission) const { ask({.kind = LedgerEntry::Kind::op, .op = submission}); }
void Stream::copy(void* to, const void* from, std::size_t bytes, CopyKind kind) const {
  ask({.kind = LedgerEntry::Kind::copy, .to = to, .from = from, .bytes = bytes, .copy_kind = kind});
}
void Stream::fill(void* to, std::uint8_t byte, std::size_t bytes) const {
  ask({.kind = LedgerEntry::Kind::fill, .to = to, .bytes = bytes, .byte = byte});
}
void Stream::exchange(const Exchange& exchange, void* to, const void* from, std::size_t bytes) const {
  ask({.kind = LedgerEntry::Kind::exchange, .to = to, .from = from, .bytes = bytes, .exchange = exchange});
}
void Stream::record(const Event& event, bool external) const {
  ask({.kind = LedgerEntry::Kind::record, .event = event.id_, .external = external});
}
void Stream::wait(const Event& event, bool external) const {
  ask({.kind = LedgerEntry::Kind::wait, .event = event.id_, .external = external});
}

void Stream::launch(const Graph& graph, const char* what) const {
  require(!device_->record_only_, "no launch during a dry run");
  Interposer* between = device_->interposer_;
  for (int left = between ? between->launches(id_, graph.id_, *graph.ledger_, device_->place) : 1; left > 0; --left) {
    device_->ranges_.at_launch(device_->place, *graph.ledger_, what);
    device_->observer_->on_launch(id_, graph.id_, *graph.ledger_, device_->place);
    device_->delay(device_->streams_[static_cast<std::size_t>(id_)]);
    device_->backend_->launch(graph.handle_.get(), handle_.get());
    device_->ops += graph.ledger_->ops();
    device_->ops_recomputed[device_->place.rank] += graph.ledger_->ops_recomputed();
    device_->delays += graph.ledger_->delays;
    for (std::int64_t* counter : graph.ledger_->counters) ++*counter;
    device_->bytes_poisoned += graph.ledger_->bytes_poisoned();
  }
}

void Stream::synchronize() const {
  require(!device_->record_only_, "no host synchronisation during a dry run");
  if (device_->interposer_ && !device_->interposer_->synchronizes(id_, -1)) return;
  device_->observer_->on_synchronize_stream(id_);
  ++device_->host_syncs;
  device_->backend_->synchronize(handle_.get());
}

bool Stream::finished() const {
  require(!device_->record_only_, "no query during a dry run");
  const bool finished = device_->backend_->finished(handle_.get());
  if (finished) device_->observer_->on_found_finished_stream(id_);
  return finished;
}

}  // namespace lockstep
