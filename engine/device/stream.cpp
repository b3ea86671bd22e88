#include "engine/device/device.h"
#include "kernels/core/require.h"

namespace lockstep {

Stream::Stream(Device& device, const char* name)
    : device_(&device),
      handle_(*device.backend_, device.backend_->create_stream(name)),
      id_(static_cast<int>(device.streams_.size())) {
  device.streams_.push_back({handle_.get(), name});
  device.delays_.created_stream(name, device.place.rank);
  device.tell(CreateStreamCall{name}, id_);
  if (device.interceptor_) device.interceptor_->created_stream(id_, name);
}

const std::string& Stream::name() const { return device_->lane(id_).name; }

template <class Call>
void Stream::ask(Call call) const {
  const IssuedCall issued{std::move(call), id_, device_->place};
  if (!device_->interceptor_) return device_->perform(issued);
  for (const IssuedCall& one : device_->interceptor_->instead_of(issued, device_->record_only_))
    device_->perform(one);
}

void Stream::enqueue(const Submission& submission) const { ask(SubmitCall{submission}); }
void Stream::copy(void* to, const void* from, std::size_t bytes, CopyKind kind,
                  const std::string& tensor) const {
  ask(CopyCall{to, from, bytes, kind, tensor});
}
void Stream::fill(void* to, std::uint8_t byte, std::size_t bytes) const {
  ask(FillCall{to, byte, bytes});
}
void Stream::exchange(const Exchange& exchange, void* to, const void* from,
                      std::size_t bytes) const {
  ask(ExchangeCall{exchange, to, from, bytes});
}
void Stream::record(const Event& event, bool external) const {
  ask(RecordCall{event.id_, external});
}
void Stream::wait(const Event& event, bool external) const { ask(WaitCall{event.id_, external}); }

void Stream::launch(const Graph& graph, const char* what) const {
  require(!device_->record_only_, "no launch during a dry run");
  CallInterceptor* between = device_->interceptor_;
  for (int left = between ? between->launches(id_, graph.id_, *graph.ledger_, device_->place) : 1;
       left > 0; --left) {
    const Ledger& captured = *graph.ledger_;
    device_->ranges_.at_launch(device_->place, captured, what);
    device_->tell(LaunchCall{graph.id_, graph.ledger_}, id_);
    device_->delay(id_);
    device_->backend_->launch(graph.handle_.get(), handle_.get());
    DeviceCounters& counters = device_->counters;
    counters.ops += captured.ops();
    counters.of(device_->place.rank).ops_recomputed += captured.ops_recomputed();
    counters.delays += captured.delays;
    for (std::int64_t* counter : captured.counters) ++*counter;
    counters.bytes_poisoned += captured.bytes_poisoned();
  }
}

void Stream::synchronize() const {
  require(!device_->record_only_, "no host synchronisation during a dry run");
  if (device_->interceptor_ && !device_->interceptor_->synchronizes(id_, -1)) return;
  device_->tell(SyncCall{}, id_);
  ++device_->counters.host_syncs;
  device_->backend_->synchronize(handle_.get());
}

bool Stream::finished() const {
  require(!device_->record_only_, "no query during a dry run");
  const bool finished = device_->backend_->finished(handle_.get());
  if (finished) device_->tell(QueryCall{}, id_);
  return finished;
}

}  // namespace lockstep
