// The device as the engine uses it: owning streams, events, graphs and buffers over a Backend.
// Every call is dispatched here: it is told to the observer, and then goes to the backend (or, in
// record-only mode, into a ledger and nowhere else).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/call_interceptor.h"
#include "engine/device/counters.h"
#include "engine/device/delay_injector.h"
#include "engine/device/observer.h"
#include "engine/device/pressure.h"
#include "engine/device/profiler_ranges.h"
#include "kernels/core/at.h"

namespace lockstep {

class Device;

// Owns memory for its lifetime: the device's, or page-locked memory of the host. Move-only; never
// empty unless moved from.
template <bool pinned>
class Buffer {
 public:
  // `ranks`: in memory that they have for what is exchanged; null: anywhere.
  Buffer(Device& device, std::size_t bytes, BackendCommunicator* ranks = nullptr);
  Buffer(Buffer&& from) noexcept;
  Buffer& operator=(Buffer from) noexcept;
  ~Buffer();
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Device* device_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};
using DeviceBuffer = Buffer<false>;
using PinnedBuffer = Buffer<true>;

// Owns a stream, an event, a graph or a communicator of the device, which destroys it. Move-only;
// never empty unless moved from.
template <class Handle>
class Owned {
 public:
  // `id`: the number by which observers know it.
  Owned(Device& device, Handle* handle, int id) : device_(&device), handle_(handle), id_(id) {}
  Owned(Owned&& from) noexcept
      : device_(from.device_), handle_(std::exchange(from.handle_, nullptr)), id_(from.id_) {}
  Owned& operator=(Owned from) noexcept {
    std::swap(device_, from.device_);
    std::swap(handle_, from.handle_);
    std::swap(id_, from.id_);
    return *this;
  }
  ~Owned();
  Handle* get() const { return handle_; }
  Handle* operator->() const { return handle_; }
  Device& device() const { return *device_; }
  int id() const { return id_; }

 private:
  Device* device_;
  Handle* handle_;
  int id_;
};
// A library's communicator, which this process has joined.
using OwnedCommunicator = Owned<BackendCommunicator>;

class Event {
 public:
  // `name`: for those who look on, like a stream's.
  explicit Event(Device& device, const char* name = "event");
  void synchronize() const;  // The host waits; returns at once if the event was never recorded.
  bool finished() const;
  int id() const { return handle_.id(); }

 private:
  Device& device() const { return handle_.device(); }
  Owned<BackendEvent> handle_;
};

class Graph;

class Stream {
 public:
  Stream(Device& device, const char* name);

  // The one way for work to reach a device. Checks the op's contract, then records, captures or
  // enqueues it.
  template <class Op>
  void submit(const Op& op) const {
    check(op);
    enqueue(Submission(op));
  }
  // `tensor` names what is copied, for traces.
  void copy(void* to, const void* from, std::size_t bytes, CopyKind kind,
            const std::string& tensor = "") const;
  void fill(void* to, std::uint8_t byte, std::size_t bytes) const;
  // Told to the observer as what it does to this rank's memory: copies, and fills by the others.
  void exchange(const Exchange& exchange, void* to, const void* from, std::size_t bytes) const;
  // A graph that holds calls of theirs.
  void launched(BackendCommunicator& ranks) const { ranks.launched(handle_.get()); }
  // Waits for the reader of what was sent over `ranks` by copies.
  void await_read(BackendCommunicator& ranks) const { ranks.await_read(handle_.get()); }
  void record(const Event& event, bool external = false) const;
  void wait(const Event& event, bool external = false) const;
  // `what` it is, for a profiler.
  void launch(const Graph& graph, const char* what = "graph") const;
  void synchronize() const;
  bool finished() const;

  // Everything submitted between begin and end becomes a graph and does not run. `abort_capture`
  // ends a capture that failed and leaves the stream usable.
  void begin_capture() const;
  Graph end_capture() const;
  void abort_capture() const noexcept;
  CaptureStatus capture_status() const;

  int id() const { return handle_.id(); }
  const std::string& name() const;
  Device& device() const { return handle_.device(); }

 private:
  void enqueue(const Submission& submission) const;
  // Makes the call on this stream, or what the interceptor puts in its place.
  template <class Call>
  void ask(Call call) const;
  Owned<BackendStream> handle_;
};

// An instantiated graph with the ledger of what was captured.
class Graph {
 public:
  const Ledger& ledger() const { return *ledger_; }
  int id() const { return handle_.id(); }

 private:
  friend class Stream;
  Graph(Device& device, BackendGraph* handle, int id, std::shared_ptr<const Ledger> ledger)
      : handle_(device, handle, id), ledger_(std::move(ledger)) {}
  Owned<BackendGraph> handle_;
  std::shared_ptr<const Ledger> ledger_;
};

class Device {
 public:
  // `observer` and `interceptor` may be null; they must outlive the device.
  explicit Device(std::unique_ptr<Backend> backend, Observer* observer = nullptr,
                  Pressure pressure = {}, CallInterceptor* interceptor = nullptr);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return backend_->info(); }
  Backend& backend() { return *backend_; }

  // Until the returned object dies, calls on streams, exchanges included, are written to `ledger`
  // and not executed: the dry run at replay. Launches, host synchronisation and allocation are a
  // broken contract meanwhile.
  class RecordOnly {
   public:
    RecordOnly(Device& device, Ledger& ledger);
    ~RecordOnly();
    RecordOnly(const RecordOnly&) = delete;
    RecordOnly& operator=(const RecordOnly&) = delete;

   private:
    Device& device_;
  };

  // Call these before the host itself writes or reads pinned memory, so that the observer knows.
  void host_writes(const void* memory, std::size_t bytes);
  void host_reads(const void* memory, std::size_t bytes);
  // Tell the observer (RankCall, BarrierCall) which rank's host makes the next calls, and that it
  // meets the others.
  void turn_of(int rank) { tell(RankCall{rank}); }
  void meets(bool goes_on) { tell(BarrierCall{goes_on}); }

  // One call as it is: told to the observer, made, and listed by the capture that the stream is
  // part of. In a dry run it is listed and nothing else.
  void perform(const IssuedCall& call);
  // Memory without an owner; the observer is told.
  void* allocate(std::size_t bytes, bool pinned, BackendCommunicator* ranks = nullptr);
  void release(void* memory, bool pinned) noexcept;
  // Joins a library's communicator of several processes.
  OwnedCommunicator join(const CommunicatorId& id, int rank, int size);
  // Calls that follow belong to the step, and to nothing within it yet.
  void enter_step(std::int64_t step) {
    place = {.step = static_cast<int>(step), .rank = place.rank};
  }
  // The host goes on to what is no part of a step: ranges of a profiler end.
  void leave_step() { ranges_.leave(); }
  // For each requested delay, whether any call waited for it.
  const std::vector<bool>& delayed() const { return delays_.applied(); }
  bool capturing() const { return capturing_ != nullptr; }
  bool in_dry_run() const { return record_only_ != nullptr; }
  // Which capture or dry run is under way; -1: none.
  int recording() const { return capturing() || in_dry_run() ? recordings_ : -1; }
  // One more in `counter` for a call on the stream: now, or in a capture once for each launch of
  // its graph, which must not outlive the counter; in a dry run never.
  void count(const Stream& stream, std::int64_t& counter);

  StepLocation place;  // Attached to each call that is submitted.

  DeviceCounters counters;

 private:
  friend class Event;
  friend class Stream;
  template <class Handle>
  friend class Owned;
  struct Lane {
    BackendStream* handle;
    std::string name;
  };
  const Lane& lane(int stream) const { return at(streams_, stream); }
  template <class Call>
  void tell(Call call, int stream = -1) const {
    observer_->on_call({std::move(call), stream, place});
  }
  void tell_effects(const ExchangeCall& exchange, const IssuedCall& issued) const;
  void enqueue(const IssuedCall& call);  // At the backend.
  // An owner lets go of an object. The observer is told before the object is gone.
  void destroy(BackendStream* stream, int id) noexcept;
  void destroy(BackendEvent* event, int id) noexcept;
  void destroy(BackendGraph* graph, int id) noexcept;
  void destroy(BackendCommunicator* ranks, int id) noexcept;
  // For destructors: a judge that must stop the run has other calls.
  template <class Call>
  void tell_the_end(Call call, int stream = -1) const noexcept;
  bool is_captured(int stream) const;
  void delay(int stream);  // What the pressure asks for, before the next work.
  std::unique_ptr<Backend> backend_;
  ProfilerRanges ranges_;
  Observer* observer_;
  DelayInjector delays_;
  CallInterceptor* interceptor_;
  Ledger* record_only_ = nullptr;
  std::shared_ptr<Ledger> capturing_;  // The ledger of the capture under way, if any.
  int capture_origin_ = -1;            // The stream it was begun on.
  std::vector<Lane> streams_;          // By number; those that are gone too.
  std::vector<BackendEvent*> events_;
  int graphs_ = 0, communicators_ = 0;
  int recordings_ = 0;  // Captures and dry runs that were begun.
};

// Restores the step location when it dies, so that what is submitted meanwhile may belong to
// another place in the step.
class StepLocationScope {
 public:
  explicit StepLocationScope(Device& device) : device_(device), before_(device.place) {}
  StepLocationScope(Device& device, int layer, const char* part) : StepLocationScope(device) {
    device.place.layer = layer;
    device.place.part = part;
  }
  ~StepLocationScope() { device_.place = before_; }
  StepLocationScope(const StepLocationScope&) = delete;
  StepLocationScope& operator=(const StepLocationScope&) = delete;

 private:
  Device& device_;
  StepLocation before_;
};

}  // namespace lockstep
