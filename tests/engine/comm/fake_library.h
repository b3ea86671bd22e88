// Ranks over a library that moves nothing and only keeps a list of its calls, on the simulator.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/comm/nccl_communicator.h"
#include "engine/rendezvous/shared_memory_store.h"
#include "harness/checker/checker.h"
#include "tests/engine/comm/processes.h"
#include "tests/engine/device/on_sim.h"

namespace lockstep::test {

enum class Library { works, brings_zeros, hangs, fails, never_joins, never_gives_memory };

class FakeRanks final : public BackendCommunicator {
 public:
  FakeRanks(Library library, Backend& device, int size)
      : library_(library), device_(device), size_(size) {}
  ~FakeRanks() override {
    if (!awaited.empty() && !std::filesystem::exists(awaited)) ::_exit(9);
  }
  static inline std::string awaited;  // The file that must be there when the library is left.
  static inline std::string said;     // "(" and ")" of groups, and a letter for each call.
  static inline std::string reached;  // Where this rank's memory is.
  static inline bool roomy = true;
  static inline std::size_t introduced = 0;  // The bytes by which a rank introduces itself.
  static inline std::size_t offered = 1;     // The bytes of an offer.
  std::string reach() const override { return reached; }
  bool has_room(std::size_t) const override { return roomy; }
  void reserve(std::size_t) override { said += 'a'; }
  void* allocate(std::size_t bytes) override {
    while (library_ == Library::never_gives_memory) ::pause();
    said += 'm';
    return device_.allocate(bytes);
  }
  void release(void* memory) noexcept override {
    said += 'r';
    device_.release(memory);
  }
  void begin_group() override { said += '('; }
  void end_group() override { said += ')'; }
  void all_gather(BackendStream* stream, void* to, const void*, std::size_t bytes) override {
    ++calls_, said += 'g';
    bring(stream, to, bytes);
  }
  void all_to_all(BackendStream* stream, void* to, const void*, std::size_t bytes) override {
    ++calls_, said += 'x';
    bring(stream, to, bytes);
  }
  void reduce_scatter(BackendStream*, float*, const float*, std::size_t) override { ++calls_; }
  void all_reduce(BackendStream*, float*, std::size_t) override { ++calls_; }
  void send(BackendStream*, const void*, std::size_t, int) override { said += 's'; }
  void receive(BackendStream*, void*, std::size_t, int) override { said += 'v'; }
  Words introduction() override { return Words(introduced); }
  bool meet(const Words& other) override { return !other.empty(); }
  Words offer(const void*) override { return said += 'o', Words(offered); }
  void accept(const Words& offer) override { said += offer.empty() ? '-' : 'a'; }
  void await_read(BackendStream*) override { said += 'w'; }
  void unmap() noexcept override { said += 'u'; }
  void launched(BackendStream*) override { calls_ += 2, said += 'l'; }
  bool busy() override { return library_ == Library::hangs && calls_ > 1; }
  std::string failure() override {
    return library_ == Library::fails && calls_ > 1 ? "library: remote process exited" : "";
  }

 private:
  void bring(BackendStream* stream, void* to, std::size_t bytes) {
    if (library_ == Library::brings_zeros) device_.fill(stream, to, 0, size_ * bytes);
  }
  Library library_;
  Backend& device_;
  const std::size_t size_;
  std::atomic<int> calls_ = 0;
};

// The simulator, with that library. Two ranks that send by copies join without an id.
class WithLibrary final : public Backend {
 public:
  explicit WithLibrary(Library library) : library_(library) {}
  static inline int joined = 0;  // Communicators of the library.
  CommunicatorId new_communicator_id() override { return CommunicatorId(128, std::byte{7}); }
  BackendCommunicator* join_communicator(const CommunicatorId& id, int rank, int size) override {
    if (id.empty() && size == 2) return new FakeRanks(Library::works, *sim_, size);
    if (id != CommunicatorId(128, std::byte{7}) || rank >= size)
      throw DeviceError("ncclInvalidArgument", "join");
    while (library_ == Library::never_joins) ::pause();
    ++joined;
    return new FakeRanks(library_, *sim_, size);
  }

  const DeviceInfo& info() const override { return sim_->info(); }
  void* allocate(std::size_t bytes) override { return sim_->allocate(bytes); }
  void* allocate_shared(BackendCommunicator& ranks, std::size_t bytes) override {
    void* const memory = ranks.allocate(bytes);
    shared_.emplace(memory, &ranks);
    return memory;
  }
  void release(void* memory) noexcept override {
    const auto found = shared_.find(memory);
    if (found == shared_.end()) return sim_->release(memory);
    found->second->release(memory);
    shared_.erase(found);
  }
  void* allocate_pinned(std::size_t bytes) override { return sim_->allocate_pinned(bytes); }
  void release_pinned(void* memory) noexcept override { sim_->release_pinned(memory); }
  void* allocate_async(BackendStream* stream, std::size_t bytes) override {
    return sim_->allocate_async(stream, bytes);
  }
  void release_async(BackendStream* stream, void* memory) override {
    sim_->release_async(stream, memory);
  }
  std::size_t memory_in_use() const override { return sim_->memory_in_use(); }
  std::size_t memory_high_water() const override { return sim_->memory_high_water(); }
  std::size_t memory_by_driver() const override { return sim_->memory_by_driver(); }
  BackendStream* create_stream(const char* name) override { return sim_->create_stream(name); }
  void destroy_stream(BackendStream* stream) noexcept override { sim_->destroy_stream(stream); }
  BackendEvent* create_event() override { return sim_->create_event(); }
  void destroy_event(BackendEvent* event) noexcept override { sim_->destroy_event(event); }
  void submit(BackendStream* stream, const Submission& op) override { sim_->submit(stream, op); }
  void copy(BackendStream* stream, void* to, const void* from, std::size_t bytes,
            CopyKind kind) override {
    sim_->copy(stream, to, from, bytes, kind);
  }
  void fill(BackendStream* stream, void* to, std::uint8_t byte, std::size_t bytes) override {
    sim_->fill(stream, to, byte, bytes);
  }
  void record(BackendStream* stream, BackendEvent* event, bool external) override {
    sim_->record(stream, event, external);
  }
  void wait(BackendStream* stream, BackendEvent* event, bool external) override {
    sim_->wait(stream, event, external);
  }
  bool finished(BackendStream* stream) override { return sim_->finished(stream); }
  bool finished(BackendEvent* event) override { return sim_->finished(event); }
  void synchronize(BackendStream* stream) override { sim_->synchronize(stream); }
  void synchronize(BackendEvent* event) override { sim_->synchronize(event); }
  void delay(BackendStream* stream, std::int64_t amount) override { sim_->delay(stream, amount); }
  void set_poison(bool fresh, bool freed) override { sim_->set_poison(fresh, freed); }
  std::int64_t bytes_poisoned() const override { return sim_->bytes_poisoned(); }
  void host_acts() override { sim_->host_acts(); }
  void begin_capture(BackendStream* stream) override { sim_->begin_capture(stream); }
  CaptureStatus capture_status(BackendStream* stream) override {
    return sim_->capture_status(stream);
  }
  BackendGraph* end_capture(BackendStream* stream) override { return sim_->end_capture(stream); }
  void launch(BackendGraph* graph, BackendStream* stream) override { sim_->launch(graph, stream); }
  void destroy_graph(BackendGraph* graph) noexcept override { sim_->destroy_graph(graph); }

 private:
  Library library_;
  std::unique_ptr<Backend> sim_ = open_sim();
  std::map<void*, BackendCommunicator*> shared_;
};

using Body = std::function<void(Communicator&, const Stream& gather, const Stream& reduce,
                                Floats& from, Floats& to)>;

// `ranks` ranks run `body`; what ended each. Words of the watchdog are in a file of its rank.
inline std::vector<Ended> ended_of(Library library, double deadline, const TemporaryFolder& folder,
                                   const Body& body, int ranks = 2) {
  const auto segment = SharedMemoryStore::create({folder / "ranks"}, ranks);
  Processes processes(ranks, [&](int rank) {
    if (std::freopen((folder / ("stderr" + std::to_string(rank))).c_str(), "w", stderr) == nullptr)
      std::abort();
    SharedMemoryStore store({folder / "ranks"}, rank, ranks, deadline);
    Checker checker({.stop = false, .mutation = "", .dropped = {}});
    Device device(std::make_unique<WithLibrary>(library), &checker);
    const auto communicator = make_nccl_communicator(device, store);
    const Stream gather(device, "gather"), reduce(device, "reduce");
    Floats from(device, 8), to(device, 8);
    gather.fill(from.data(), 0, from.bytes());
    body(*communicator, gather, reduce, from, to);
    for (const Hazard& hazard : checker.hazards()) throw std::runtime_error(text(hazard));
    return 0;
  });
  return processes.end();
}

}  // namespace lockstep::test
