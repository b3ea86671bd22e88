// Ranks over a library that moves nothing and only keeps a list of its calls, on the simulator.
#pragma once

#include <unistd.h>

#include <algorithm>
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
#include "harness/case/forwarding_backend.h"
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
  static inline int kept = 0;
  void keep() override { ++kept; }
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
class WithLibrary final : public ForwardingBackend {
 public:
  explicit WithLibrary(Library library) : ForwardingBackend(open_sim()), library_(library) {}
  static inline int joined = 0;  // Communicators of the library.
  static inline std::vector<CommunicatorId> joined_again;
  // Returns the ids that a rank can join again.
  static inline std::function<std::vector<CommunicatorId>(int rank, int size)> spares;
  std::vector<CommunicatorId> spare_communicators(int rank, int size) override {
    return spares ? spares(rank, size) : std::vector<CommunicatorId>{};
  }
  CommunicatorId new_communicator_id() override { return CommunicatorId(128, std::byte{7}); }
  BackendCommunicator* join_communicator(const CommunicatorId& id, int rank, int size) override {
    if (id.empty() && size == 2) return new FakeRanks(Library::works, *backend_, size);
    const auto spare = spare_communicators(rank, size);
    if (std::ranges::find(spare, id) != spare.end()) {
      joined_again.push_back(id);
      return new FakeRanks(library_, *backend_, size);
    }
    if (id != CommunicatorId(128, std::byte{7}) || rank >= size)
      throw DeviceError("ncclInvalidArgument", "join");
    while (library_ == Library::never_joins) ::pause();
    ++joined;
    return new FakeRanks(library_, *backend_, size);
  }

  void* allocate_shared(BackendCommunicator& ranks, std::size_t bytes) override {
    void* const memory = ranks.allocate(bytes);
    shared_.emplace(memory, &ranks);
    return memory;
  }
  void release(void* memory) noexcept override {
    const auto found = shared_.find(memory);
    if (found == shared_.end()) return backend_->release(memory);
    found->second->release(memory);
    shared_.erase(found);
  }

 private:
  Library library_;
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
