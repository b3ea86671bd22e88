// A device that passes every call on to another, for those that look at some calls or change them.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "engine/device/backend.h"

namespace lockstep {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  const DeviceInfo& info() const override { return backend_->info(); }
  DeviceClocks clocks() const override { return backend_->clocks(); }
  Profiler* profiler() override { return backend_->profiler(); }
  void enter_thread() override { backend_->enter_thread(); }
  CommunicatorId new_communicator_id() override { return backend_->new_communicator_id(); }
  BackendCommunicator* join_communicator(const CommunicatorId& id, int rank, int size) override {
    return backend_->join_communicator(id, rank, size);
  }

  void* allocate(std::size_t bytes) override { return backend_->allocate(bytes); }
  void release(void* memory) noexcept override { backend_->release(memory); }
  void* allocate_shared(BackendCommunicator& ranks, std::size_t bytes) override {
    return backend_->allocate_shared(ranks, bytes);
  }
  void* allocate_pinned(std::size_t bytes) override { return backend_->allocate_pinned(bytes); }
  void release_pinned(void* memory) noexcept override { backend_->release_pinned(memory); }
  void* allocate_async(BackendStream* stream, std::size_t bytes) override {
    return backend_->allocate_async(stream, bytes);
  }
  void release_async(BackendStream* stream, void* memory) override {
    backend_->release_async(stream, memory);
  }
  std::size_t memory_in_use() const override { return backend_->memory_in_use(); }
  std::size_t memory_high_water() const override { return backend_->memory_high_water(); }
  std::size_t memory_by_driver() const override { return backend_->memory_by_driver(); }

  BackendStream* create_stream(const char* name) override { return backend_->create_stream(name); }
  void destroy_stream(BackendStream* stream) noexcept override { backend_->destroy_stream(stream); }
  BackendEvent* create_event() override { return backend_->create_event(); }
  void destroy_event(BackendEvent* event) noexcept override { backend_->destroy_event(event); }

  void plan(const Submission& op) override { backend_->plan(op); }
  PlanCounts plans() const override { return backend_->plans(); }
  std::int64_t workspace_bytes(const Submission& op) override {
    return backend_->workspace_bytes(op);
  }
  bool submit_fastest(BackendStream* stream, const Submission& op) override {
    return backend_->submit_fastest(stream, op);
  }

  void submit(BackendStream* stream, const Submission& op) override {
    backend_->submit(stream, op);
  }
  void copy(BackendStream* stream, void* to, const void* from, std::size_t bytes,
            CopyKind kind) override {
    backend_->copy(stream, to, from, bytes, kind);
  }
  void fill(BackendStream* stream, void* to, std::uint8_t byte, std::size_t bytes) override {
    backend_->fill(stream, to, byte, bytes);
  }
  void record(BackendStream* stream, BackendEvent* event, bool external) override {
    backend_->record(stream, event, external);
  }
  void wait(BackendStream* stream, BackendEvent* event, bool external) override {
    backend_->wait(stream, event, external);
  }
  bool finished(BackendStream* stream) override { return backend_->finished(stream); }
  bool finished(BackendEvent* event) override { return backend_->finished(event); }
  void synchronize(BackendStream* stream) override { backend_->synchronize(stream); }
  void synchronize(BackendEvent* event) override { backend_->synchronize(event); }

  void call(BackendStream* stream, const char* name, std::function<void()> body) override {
    backend_->call(stream, name, std::move(body));
  }
  void delay(BackendStream* stream, std::int64_t amount) override {
    backend_->delay(stream, amount);
  }
  void set_poison(bool fresh, bool freed) override { backend_->set_poison(fresh, freed); }
  std::int64_t bytes_poisoned() const override { return backend_->bytes_poisoned(); }
  void host_acts() override { backend_->host_acts(); }

  void begin_capture(BackendStream* stream) override { backend_->begin_capture(stream); }
  CaptureStatus capture_status(BackendStream* stream) override {
    return backend_->capture_status(stream);
  }
  BackendGraph* end_capture(BackendStream* stream) override {
    return backend_->end_capture(stream);
  }
  void launch(BackendGraph* graph, BackendStream* stream) override {
    backend_->launch(graph, stream);
  }
  void destroy_graph(BackendGraph* graph) noexcept override { backend_->destroy_graph(graph); }

 protected:
  std::unique_ptr<Backend> backend_;
};

}  // namespace lockstep
