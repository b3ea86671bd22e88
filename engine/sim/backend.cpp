// The simulated device: the semantics of the CUDA runtime over host memory, with every order chosen
// by a seed.
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/device/current_place.h"
#include "engine/sim/capture.h"
#include "engine/sim/memory.h"
#include "engine/sim/schedule.h"
#include "kernels/core/require.h"
#include "kernels/ops/cudnn_attention.h"

namespace lockstep {
namespace {

class SimBackend final : public Backend {
 public:
  explicit SimBackend(const SimOptions& options)
      : schedule_(options, memory_), profiler_(options.profiler) {
    info_.kind = "sim";
    info_.name = "simulated device";
    info_.copy_engines_off = "NCCL is not simulated";
  }
  ~SimBackend() override;
  const DeviceInfo& info() const override { return info_; }
  Profiler* profiler() override { return profiler_; }

  void* allocate(std::size_t bytes) override;
  void release(void* memory) noexcept override;
  void* allocate_pinned(std::size_t bytes) override;
  void release_pinned(void* memory) noexcept override;
  void* allocate_async(BackendStream* stream, std::size_t bytes) override;
  void release_async(BackendStream* stream, void* memory) override;
  std::size_t memory_in_use() const override { return memory_.in_use(); }
  std::size_t memory_high_water() const override { return memory_.high_water(); }
  std::size_t memory_by_driver() const override { return memory_.in_use(); }

  BackendStream* create_stream(const char* name) override;
  void destroy_stream(BackendStream* stream) noexcept override;
  BackendEvent* create_event() override { return new BackendEvent; }
  void destroy_event(BackendEvent* event) noexcept override { delete event; }

  std::int64_t workspace_bytes(const Submission& op) override;
  void submit(BackendStream* stream, const Submission& op) override {
    put(*stream, SimOp{op, current_place ? *current_place : StepLocation{}}, "submit");
  }
  void copy(BackendStream* stream, void* to, const void* from, std::size_t bytes,
            CopyKind kind) override;
  void fill(BackendStream* stream, void* to, std::uint8_t byte, std::size_t bytes) override;
  void record(BackendStream* stream, BackendEvent* event, bool external) override;
  void wait(BackendStream* stream, BackendEvent* event, bool external) override;
  bool finished(BackendStream* stream) override;
  bool finished(BackendEvent* event) override;
  void synchronize(BackendStream* stream) override;
  void synchronize(BackendEvent* event) override;

  void call(BackendStream* stream, const char* name, std::function<void()> run) override;
  void delay(BackendStream* stream, std::int64_t amount) override {
    put(*stream, SimDelay{amount}, "delay");
  }
  void set_poison(bool, bool) override {}  // Both always.
  std::int64_t bytes_poisoned() const override { return memory_.bytes_poisoned(); }
  void host_acts() override { schedule_.host_acts(); }

  void begin_capture(BackendStream* stream) override;
  CaptureStatus capture_status(BackendStream* stream) override;
  BackendGraph* end_capture(BackendStream* stream) override;
  void launch(BackendGraph* graph, BackendStream* stream) override;
  void destroy_graph(BackendGraph* graph) noexcept override { delete graph; }

 private:
  // Into the capture or the queue.
  void put(BackendStream& stream, SimWork work, const char* call);
  void enqueue(BackendStream& stream, SimWork work);
  void bind_external(SimRun& run, BackendStream& stream);
  void check_memory();
  void throw_damage(const char* call);
  void release_deferred() noexcept;

  DeviceInfo info_;
  SimMemory memory_;
  SimSchedule schedule_;
  Profiler* profiler_;
  SimCaptures captures_;
  std::vector<std::unique_ptr<BackendStream>> streams_;  // Destroyed ones too: marks name them.
  std::vector<void*> deferred_, deferred_pinned_;  // Freed during a capture, which CUDA refuses.
  std::int64_t checked_at_ = 0;  // How many items had run at the last look at the red zones.
  bool reported_ = false;        // The damage was thrown once.
};

// No library is simulated: its ops have the contract's bits here, in as much memory as the library
// is known to take.
std::int64_t SimBackend::workspace_bytes(const Submission& op) {
  if (const auto* forward = op.as<CudnnAttentionForward>()) return reckoned_workspace(*forward);
  if (const auto* backward = op.as<CudnnAttentionBackward>()) return reckoned_workspace(*backward);
  return 0;
}

SimBackend::~SimBackend() {
  release_deferred();
  schedule_.drain_all();
  memory_.check_red_zones();
  if (memory_.damage().empty() || reported_) return;
  std::fprintf(stderr, "simulated device: %s\n", memory_.damage().c_str());
  require(std::uncaught_exceptions() > 0, "no op writes outside its operands");
}

void SimBackend::throw_damage(const char* call) {
  if (memory_.damage().empty()) return;
  reported_ = true;
  throw DeviceError("cudaErrorIllegalAddress", memory_.damage() + ": " + call);
}

void SimBackend::check_memory() {
  release_deferred();
  if (schedule_.items_run() != std::exchange(checked_at_, schedule_.items_run()))
    memory_.check_red_zones();
  throw_damage("synchronize");
}

void* SimBackend::allocate(std::size_t bytes) {
  captures_.refuse_unsafe("allocate");
  release_deferred();
  if (bytes == 0) return nullptr;  // As cudaMalloc.
  void* memory = memory_.allocate(bytes);
  if (!memory)
    throw DeviceError("cudaErrorMemoryAllocation", "allocate " + std::to_string(bytes) + " bytes");
  return memory;
}

void* SimBackend::allocate_pinned(std::size_t bytes) {
  captures_.refuse_unsafe("allocate_pinned");
  release_deferred();
  if (bytes == 0) return nullptr;
  void* memory = memory_.allocate_pinned(bytes);
  if (!memory)
    throw DeviceError("cudaErrorMemoryAllocation",
                      "allocate_pinned " + std::to_string(bytes) + " bytes");
  return memory;
}

// cudaFree waits for the device.
void SimBackend::release(void* memory) noexcept {
  schedule_.host_acts();
  if (captures_.breaks_unsafe()) return deferred_.push_back(memory);
  schedule_.drain_all();
  require(memory_.release(memory), "released memory was allocated");
}

void SimBackend::release_pinned(void* memory) noexcept {
  schedule_.host_acts();
  if (captures_.breaks_unsafe()) return deferred_pinned_.push_back(memory);
  schedule_.drain_all();
  require(memory_.release_pinned(memory), "released memory was allocated");
}

void SimBackend::release_deferred() noexcept {
  for (void* memory : std::exchange(deferred_, {})) release(memory);
  for (void* memory : std::exchange(deferred_pinned_, {})) release_pinned(memory);
}

void* SimBackend::allocate_async(BackendStream* stream, std::size_t bytes) {
  if (stream->capture) throw DeviceError("cudaErrorNotSupported", "allocate_async in a capture");
  captures_.refuse_unsafe("allocate_async");
  void* memory = memory_.allocate(bytes);
  if (!memory)
    throw DeviceError("cudaErrorMemoryAllocation",
                      "allocate_async " + std::to_string(bytes) + " bytes");
  return memory;
}

void SimBackend::release_async(BackendStream* stream, void* memory) {
  if (stream->capture) throw DeviceError("cudaErrorNotSupported", "release_async in a capture");
  captures_.refuse_unsafe("release_async");
  enqueue(*stream, SimRelease{memory});
}

BackendStream* SimBackend::create_stream(const char* name) {
  BackendStream& stream = *streams_.emplace_back(std::make_unique<BackendStream>());
  stream.id = static_cast<int>(streams_.size()) - 1;
  stream.name = name;
  schedule_.add(&stream);
  return &stream;
}

// The CUDA device waits for the stream, which breaks a capture of this thread.
void SimBackend::destroy_stream(BackendStream* stream) noexcept {
  captures_.breaks_unsafe();
  captures_.forget(*stream);
  stream->destroyed = true;
}

void SimBackend::put(BackendStream& stream, SimWork work, const char* call) {
  if (stream.capture) return captures_.add(stream, std::move(work), call);
  throw_damage(call);
  enqueue(stream, std::move(work));
}

void SimBackend::enqueue(BackendStream& stream, SimWork work) {
  stream.queue.push_back(std::move(work));
  ++stream.submitted;
  schedule_.submitted();
}

void SimBackend::copy(BackendStream* stream, void* to, const void* from, std::size_t bytes,
                      CopyKind kind) {
  if (bytes == 0) return;
  if (!to || !from) throw DeviceError("cudaErrorInvalidValue", "copy from or to nowhere");
  SimCopy copy{to, from, bytes, nullptr};
  // Pageable memory too is read at the launch.
  if (stream->capture) return put(*stream, std::move(copy), "copy");
  const bool pageable = (kind == CopyKind::host_to_device && !memory_.is_pinned(from, bytes)) ||
                        (kind == CopyKind::device_to_host && !memory_.is_pinned(to, bytes));
  if (pageable && kind == CopyKind::host_to_device) {
    copy.staged = std::make_shared_for_overwrite<std::byte[]>(bytes);
    std::memcpy(copy.staged.get(), from, bytes);
  }
  put(*stream, std::move(copy), "copy");
  if (!pageable || kind != CopyKind::device_to_host) return;
  schedule_.host_acts();
  schedule_.drain(*stream, stream->submitted);
}

void SimBackend::fill(BackendStream* stream, void* to, std::uint8_t byte, std::size_t bytes) {
  if (bytes == 0) return;
  if (!to) throw DeviceError("cudaErrorInvalidValue", "fill nowhere");
  put(*stream, SimFill{to, byte, bytes}, "fill");
}

void SimBackend::record(BackendStream* stream, BackendEvent* handle, bool external) {
  SimEvent& event = *handle->event;
  if (stream->capture && external)
    return captures_.add(*stream, SimExternalRecord{handle->event}, "record");
  if (stream->capture) return captures_.record(*stream, event);
  if (external) throw DeviceError("cudaErrorIllegalState", "external record outside a capture");
  event.capture = nullptr;
  event.latest = std::make_shared<SimMark>();
  event.latest->stream = stream;
  event.latest->ticket = stream->submitted + 1;
  put(*stream, SimRecord{event.latest}, "record");
}

void SimBackend::wait(BackendStream* stream, BackendEvent* handle, bool external) {
  SimEvent& event = *handle->event;
  if (external && stream->capture) return captures_.wait_external(*stream, handle->event);
  if (external) {
    captures_.refuse_over(event, "wait");
    throw DeviceError("cudaErrorIllegalState", "external wait outside a capture");
  }
  if (captures_.wait(*stream, event)) return;
  if (!event.latest->done) put(*stream, SimWait{event.latest}, "wait");
}

void SimBackend::call(BackendStream* stream, const char* name, std::function<void()> run) {
  if (!stream->capture) throw DeviceError("cudaErrorNotSupported", "call outside a capture");
  captures_.add(*stream, SimCall{name, std::move(run)}, "call");
}

bool SimBackend::finished(BackendStream* stream) {
  captures_.refuse_on(*stream, "finished");
  captures_.refuse_unsafe("finished");
  throw_damage("finished");
  schedule_.host_acts();
  schedule_.settle();
  if (stream->done == stream->submitted) return true;
  schedule_.nudge(*stream, stream->submitted);
  return false;
}

bool SimBackend::finished(BackendEvent* handle) {
  const SimEvent& event = *handle->event;
  captures_.refuse_captured(event, "finished");
  captures_.refuse_unsafe("finished");
  throw_damage("finished");
  schedule_.host_acts();
  schedule_.settle();
  if (!event.latest || event.latest->done) return true;
  schedule_.nudge(*event.latest);
  return false;
}

void SimBackend::synchronize(BackendStream* stream) {
  captures_.refuse_on(*stream, "synchronize");
  captures_.refuse_unsafe("synchronize");
  schedule_.host_acts();
  schedule_.drain(*stream, stream->submitted);
  check_memory();
}

void SimBackend::synchronize(BackendEvent* handle) {
  const SimEvent& event = *handle->event;
  captures_.refuse_captured(event, "synchronize");
  captures_.refuse_unsafe("synchronize");
  schedule_.host_acts();
  if (event.latest) schedule_.drain(*event.latest);
  check_memory();
}

void SimBackend::begin_capture(BackendStream* stream) { captures_.begin(*stream); }

CaptureStatus SimBackend::capture_status(BackendStream* stream) {
  if (!stream->capture) return CaptureStatus::none;
  return stream->capture->invalidated ? CaptureStatus::invalidated : CaptureStatus::active;
}

BackendGraph* SimBackend::end_capture(BackendStream* stream) {
  std::shared_ptr<const SimGraph> graph = captures_.end(*stream);
  captures_.refuse_unsafe("instantiate");
  return new BackendGraph{std::move(graph), nullptr};
}

void SimBackend::launch(BackendGraph* graph, BackendStream* stream) {
  captures_.refuse_on(*stream, "launch");
  auto run = std::make_shared<SimRun>();
  run->graph = graph->graph;
  if (current_place) run->step = current_place->step;
  if (current_place) run->microbatch = current_place->microbatch;
  run->previous = graph->last_launch;
  run->finished = std::make_shared<SimMark>();
  run->finished->stream = stream;
  run->finished->ticket = stream->submitted + 1;
  if (run->graph->external) bind_external(*run, *stream);
  schedule_.add_run(*run);
  graph->last_launch = run->finished;
  put(*stream, SimLaunch{std::move(run)}, "launch");
  if (graph->graph->calls) schedule_.drain(*stream, stream->submitted);
}

// Binds as the calls themselves would: a wait is for the latest record so far, and later waits are
// for the records of this graph.
void SimBackend::bind_external(SimRun& run, BackendStream& stream) {
  const std::vector<SimNode>& nodes = run.graph->nodes;
  run.marks.resize(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (const auto* wait = std::get_if<SimExternalWait>(&nodes[i].work))
      run.marks[i] = wait->event->latest;
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto* record = std::get_if<SimExternalRecord>(&nodes[i].work);
    if (!record) continue;
    auto mark = std::make_shared<SimMark>();
    mark->stream = &stream;
    mark->ticket = stream.submitted + 1;
    mark->run = &run;
    mark->node = static_cast<int>(i);
    run.marks[i] = mark;
    record->event->latest = std::move(mark);
    record->event->capture = nullptr;
  }
}

}  // namespace

std::unique_ptr<Backend> open_sim(const SimOptions& options) {
  return std::make_unique<SimBackend>(options);
}

}  // namespace lockstep
