#include "engine/device/current_place.h"
#include "engine/device/device.h"
#include "kernels/core/require.h"

namespace lockstep {

Stream::Stream(Device& device, const char* name)
    : handle_(device, device.backend_->create_stream(name),
              static_cast<int>(device.streams_.size())) {
  device.streams_.push_back({handle_.get(), name});
  device.delays_.created_stream(name, device.place.rank);
  device.tell(CreateStreamCall{name}, id());
  if (device.interceptor_) device.interceptor_->created_stream(id(), name);
}

const std::string& Stream::name() const { return device().lane(id()).name; }

template <class Call>
void Stream::ask(Call call) const {
  const IssuedCall issued{std::move(call), id(), device().place};
  if (!device().interceptor_) return device().perform(issued);
  for (const IssuedCall& one : device().interceptor_->instead_of(issued, device().record_only_))
    device().perform(one);
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
  ask(RecordCall{event.id(), external});
}
void Stream::wait(const Event& event, bool external) const { ask(WaitCall{event.id(), external}); }

void Stream::launch(const Graph& graph, const char* what) const {
  require(!device().record_only_, "no launch during a dry run");
  CallInterceptor* between = device().interceptor_;
  for (int left = between ? between->launches(id(), graph.id(), *graph.ledger_, device().place) : 1;
       left > 0; --left) {
    const Ledger& captured = *graph.ledger_;
    device().ranges_.at_launch(device().place, captured, what);
    device().tell(LaunchCall{graph.id(), graph.ledger_}, id());
    device().delay(id());
    const CallAt here(device().place);
    device().backend_->launch(graph.handle_.get(), handle_.get());
    DeviceCounters& counters = device().counters;
    counters.ops += captured.ops();
    counters.of(device().place.rank).ops_recomputed += captured.ops_recomputed();
    counters.delays += captured.delays;
    for (std::int64_t* counter : captured.counters) ++*counter;
    counters.bytes_poisoned += captured.bytes_poisoned();
  }
}

void Stream::synchronize() const {
  require(!device().record_only_, "no host synchronisation during a dry run");
  if (device().interceptor_ && !device().interceptor_->synchronizes(id(), -1)) return;
  device().tell(SyncCall{}, id());
  ++device().counters.host_syncs;
  device().backend_->synchronize(handle_.get());
}

bool Stream::finished() const {
  require(!device().record_only_, "no query during a dry run");
  const bool finished = device().backend_->finished(handle_.get());
  if (finished) device().tell(QueryCall{}, id());
  return finished;
}

}  // namespace lockstep
