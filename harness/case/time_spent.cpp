#include "harness/case/time_spent.h"

#include <utility>

#include "harness/case/forwarding_backend.h"

namespace lockstep {
namespace {

bool is_on = false;
TimesByKind spent;

class TimedBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  ~TimedBackend() override {
    const TimeSpent::Part part("opening and closing");
    backend_.reset();
  }

  BackendCommunicator* join_communicator(const CommunicatorId& id, int rank, int size) override {
    const TimeSpent::Part part("joining");
    return backend_->join_communicator(id, rank, size);
  }

  void* allocate(std::size_t bytes) override {
    const TimeSpent::Part part(kMemory);
    return backend_->allocate(bytes);
  }
  void release(void* memory) noexcept override {
    const TimeSpent::Part part(kMemory);
    backend_->release(memory);
  }
  void* allocate_shared(BackendCommunicator& ranks, std::size_t bytes) override {
    const TimeSpent::Part part(kMemory);
    return backend_->allocate_shared(ranks, bytes);
  }
  void* allocate_pinned(std::size_t bytes) override {
    const TimeSpent::Part part(kMemory);
    return backend_->allocate_pinned(bytes);
  }
  void release_pinned(void* memory) noexcept override {
    const TimeSpent::Part part(kMemory);
    backend_->release_pinned(memory);
  }
  void* allocate_async(BackendStream* stream, std::size_t bytes) override {
    const TimeSpent::Part part(kMemory);
    return backend_->allocate_async(stream, bytes);
  }
  void release_async(BackendStream* stream, void* memory) override {
    const TimeSpent::Part part(kMemory);
    backend_->release_async(stream, memory);
  }

  BackendStream* create_stream(const char* name) override {
    const TimeSpent::Part part(kStreams);
    return backend_->create_stream(name);
  }
  void destroy_stream(BackendStream* stream) noexcept override {
    const TimeSpent::Part part(kStreams);
    backend_->destroy_stream(stream);
  }
  BackendEvent* create_event() override {
    const TimeSpent::Part part(kStreams);
    return backend_->create_event();
  }
  void destroy_event(BackendEvent* event) noexcept override {
    const TimeSpent::Part part(kStreams);
    backend_->destroy_event(event);
  }

  void plan(const Submission& op) override {
    const TimeSpent::Part part(kPlans);
    backend_->plan(op);
  }
  std::int64_t workspace_bytes(const Submission& op) override {
    const TimeSpent::Part part(kPlans);
    return backend_->workspace_bytes(op);
  }

  void submit(BackendStream* stream, const Submission& op) override {
    const TimeSpent::Part part("kernels");
    backend_->submit(stream, op);
  }
  void copy(BackendStream* stream, void* to, const void* from, std::size_t bytes,
            CopyKind kind) override {
    const TimeSpent::Part part(kCopies);
    backend_->copy(stream, to, from, bytes, kind);
  }
  void fill(BackendStream* stream, void* to, std::uint8_t byte, std::size_t bytes) override {
    const TimeSpent::Part part(kCopies);
    backend_->fill(stream, to, byte, bytes);
  }
  void record(BackendStream* stream, BackendEvent* event, bool external) override {
    const TimeSpent::Part part(kOrder);
    backend_->record(stream, event, external);
  }
  void wait(BackendStream* stream, BackendEvent* event, bool external) override {
    const TimeSpent::Part part(kOrder);
    backend_->wait(stream, event, external);
  }
  bool finished(BackendStream* stream) override {
    const TimeSpent::Part part(kWaiting);
    return backend_->finished(stream);
  }
  bool finished(BackendEvent* event) override {
    const TimeSpent::Part part(kWaiting);
    return backend_->finished(event);
  }
  void synchronize(BackendStream* stream) override {
    const TimeSpent::Part part(kWaiting);
    backend_->synchronize(stream);
  }
  void synchronize(BackendEvent* event) override {
    const TimeSpent::Part part(kWaiting);
    backend_->synchronize(event);
  }

  void begin_capture(BackendStream* stream) override {
    const TimeSpent::Part part(kGraphs);
    backend_->begin_capture(stream);
  }
  BackendGraph* end_capture(BackendStream* stream) override {
    const TimeSpent::Part part(kGraphs);
    return backend_->end_capture(stream);
  }
  void launch(BackendGraph* graph, BackendStream* stream) override {
    const TimeSpent::Part part("graph launches");
    backend_->launch(graph, stream);
  }
  void destroy_graph(BackendGraph* graph) noexcept override {
    const TimeSpent::Part part(kGraphs);
    backend_->destroy_graph(graph);
  }

 private:
  static constexpr const char* kMemory = "memory";
  static constexpr const char* kStreams = "streams and events made and ended";
  static constexpr const char* kPlans = "plans of products";
  static constexpr const char* kCopies = "copies and fills";
  static constexpr const char* kOrder = "records and waits of streams";
  static constexpr const char* kWaiting = "the host waits";
  static constexpr const char* kGraphs = "graphs captured and ended";
};

}  // namespace

void TimeSpent::begin() { is_on = true; }
bool TimeSpent::counts() { return is_on; }
TimesByKind TimeSpent::take() { return std::exchange(spent, {}); }

TimeSpent::Part::~Part() {
  if (!is_on) return;
  TimeOfKind& kind = spent[kind_];
  kind.seconds += watch_.seconds();
  ++kind.calls;
}

std::unique_ptr<Backend> timed(std::unique_ptr<Backend> backend) {
  return std::make_unique<TimedBackend>(std::move(backend));
}

}  // namespace lockstep
