#include "engine/device/device.h"

#include "engine/device/current_place.h"
#include "kernels/core/at.h"
#include "kernels/core/require.h"

namespace lockstep {

Device::Device(std::unique_ptr<Backend> backend, Observer* observer, Pressure pressure,
               CallInterceptor* interceptor)
    : backend_(std::move(backend)),
      ranges_(backend_->profiler()),
      observer_(observer),
      delays_(std::move(pressure.delays), pressure.seed),
      interceptor_(interceptor) {
  static Observer silent;
  if (!observer_) observer_ = &silent;
  backend_->set_poison(pressure.poison_fresh, pressure.poison_freed);
  if (interceptor_) interceptor_->attached(*this);
}

Device::~Device() = default;

void Device::host_writes(const void* memory, std::size_t bytes) {
  tell(HostAccessCall{memory, bytes, true});
  backend_->host_acts();
}
void Device::host_reads(const void* memory, std::size_t bytes) {
  tell(HostAccessCall{memory, bytes, false});
  backend_->host_acts();
}

bool Device::is_captured(int stream) const {
  return capturing_ && backend_->capture_status(lane(stream).handle) != CaptureStatus::none;
}

void Device::delay(int stream) {
  if (delays_.is_idle()) return;
  const bool captured = is_captured(stream);
  const std::int64_t amount =
      delays_.before({stream, place.rank, captured, captured && stream != capture_origin_});
  if (amount == 0) return;
  backend_->delay(lane(stream).handle, amount);
  ++(captured ? capturing_->delays : counters.delays);
}

namespace {

void make(const ExchangeCall& call, BackendStream* stream) {
  BackendCommunicator& ranks = *call.exchange.ranks;
  void* const to = call.to;
  const void* const from = call.from;
  const std::size_t bytes = call.bytes;
  switch (call.exchange.kind) {
    case CollectiveKind::all_gather:
      return ranks.all_gather(stream, to, from, bytes);
    case CollectiveKind::all_to_all:
      return ranks.all_to_all(stream, to, from, bytes);
    case CollectiveKind::reduce_scatter:
      return ranks.reduce_scatter(stream, static_cast<float*>(to), static_cast<const float*>(from),
                                  bytes);
    case CollectiveKind::all_reduce:
      return ranks.all_reduce(stream, static_cast<float*>(to), bytes);
    case CollectiveKind::send:
      return ranks.send(stream, from, bytes, call.exchange.peer);
    case CollectiveKind::receive:
      return ranks.receive(stream, to, bytes, call.exchange.peer);
    case CollectiveKind::barrier:
    case CollectiveKind::launch:
      require(false, "meetings and launches take no turn on a stream");
  }
}

}  // namespace

void Device::tell_effects(const ExchangeCall& exchange, const IssuedCall& issued) const {
  const bool sends = exchange.exchange.kind == CollectiveKind::send;
  const CopyKind kind = sends ? CopyKind::device_to_host : CopyKind::device_to_device;
  for (const Effect& effect : effects_of(exchange)) {
    if (effect.from == nullptr) {
      observer_->on_call(
          {FillCall{.to = effect.to, .bytes = effect.bytes}, issued.stream, issued.place});
    } else {
      const CopyCall copy{effect.to, effect.from, effect.bytes, kind};
      observer_->on_call({copy, issued.stream, issued.place});
    }
  }
}

void Device::enqueue(const IssuedCall& issued) {
  BackendStream* const stream = lane(issued.stream).handle;
  const auto event = [this](int number) { return at(events_, number); };
  const CallAt here(issued.place);
  std::visit(Overloaded{
                 [&](const SubmitCall& c) { backend_->submit(stream, c.op); },
                 [&](const CopyCall& c) { backend_->copy(stream, c.to, c.from, c.bytes, c.kind); },
                 [&](const FillCall& c) { backend_->fill(stream, c.to, c.byte, c.bytes); },
                 [&](const RecordCall& c) { backend_->record(stream, event(c.event), c.external); },
                 [&](const WaitCall& c) { backend_->wait(stream, event(c.event), c.external); },
                 [&](const ExchangeCall& c) { make(c, stream); },
                 [](const auto&) { require(false, "only calls on a stream are performed"); },
             },
             issued.call);
}

void Device::perform(const IssuedCall& issued) {
  if (record_only_) return record_only_->append(issued);
  ranges_.at(issued.place, capturing());
  if (const auto* exchange = issued.as<ExchangeCall>()) {
    tell_effects(*exchange, issued);
  } else {
    observer_->on_call(issued);
  }
  const bool is_edge = issued.as<RecordCall>() || issued.as<WaitCall>();
  if (!is_edge) delay(issued.stream);
  enqueue(issued);
  // A wait may be what makes the stream part of the capture, so this is asked after the backend
  // took the call.
  if (is_captured(issued.stream)) return capturing_->append(issued);
  if (const auto* submitted = issued.as<SubmitCall>()) {
    ++counters.ops;
    if (issued.place.recomputes()) ++counters.of(issued.place.rank).ops_recomputed;
    counters.bytes_poisoned += bytes_poisoned(submitted->op);
  }
}

void Device::count(const Stream& stream, std::int64_t& counter) {
  if (record_only_) return;
  if (capturing_ && stream.capture_status() != CaptureStatus::none)
    return capturing_->counters.push_back(&counter);
  ++counter;
}

void* Device::allocate(std::size_t bytes, bool pinned, BackendCommunicator* ranks) {
  require(!record_only_, "no allocation during a dry run");
  require(ranks == nullptr || !pinned, "what is exchanged lies on the device");
  if (interceptor_) {
    if (void* shared = interceptor_->shared_memory(bytes, pinned)) return shared;
  }
  void* memory = pinned             ? backend_->allocate_pinned(bytes)
                 : ranks != nullptr ? backend_->allocate_shared(*ranks, bytes)
                                    : backend_->allocate(bytes);
  if (memory) tell(AllocateCall{memory, bytes, pinned});
  if (memory && interceptor_) interceptor_->allocated(memory, bytes, pinned);
  return memory;
}

template <class Call>
void Device::tell_the_end(Call call, int stream) const noexcept {
  try {
    tell(std::move(call), stream);
  } catch (...) {
  }
}

void Device::release(void* memory, bool pinned) noexcept {
  if (!memory || (interceptor_ && !interceptor_->releases(memory))) return;
  tell_the_end(ReleaseCall{memory, pinned});
  pinned ? backend_->release_pinned(memory) : backend_->release(memory);
}

OwnedCommunicator Device::join(const CommunicatorId& id, int rank, int size) {
  OwnedCommunicator joined(*this, backend_->join_communicator(id, rank, size), communicators_++);
  tell(CreateCommunicatorCall{joined.get()});
  return joined;
}

void Device::destroy(BackendStream* stream, int id) noexcept {
  tell_the_end(DestroyStreamCall{}, id);
  backend_->destroy_stream(stream);
}

void Device::destroy(BackendEvent* event, int id) noexcept {
  tell_the_end(DestroyEventCall{id});
  at(events_, id) = nullptr;
  backend_->destroy_event(event);
}

void Device::destroy(BackendGraph* graph, int id) noexcept {
  tell_the_end(DestroyGraphCall{id});
  backend_->destroy_graph(graph);
}

void Device::destroy(BackendCommunicator* ranks, int) noexcept {
  tell_the_end(DestroyCommunicatorCall{ranks});
  delete ranks;
}

template <class Handle>
Owned<Handle>::~Owned() {
  if (handle_) device_->destroy(handle_, id_);
}

template class Owned<BackendStream>;
template class Owned<BackendEvent>;
template class Owned<BackendGraph>;
template class Owned<BackendCommunicator>;

Device::RecordOnly::RecordOnly(Device& device, Ledger& ledger) : device_(device) {
  require(!device.record_only_, "one dry run at a time");
  require(!device.capturing_, "no dry run during a capture");
  device.record_only_ = &ledger;
  ++device.recordings_;
}

Device::RecordOnly::~RecordOnly() { device_.record_only_ = nullptr; }

}  // namespace lockstep
