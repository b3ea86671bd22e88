// A communicator that lists its calls, or makes none of them, and the time of the listed calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/nccl_communicator.h"
#include "engine/rendezvous/collective_ledger.h"

namespace lockstep {

class ListingCommunicator final : public Communicator {
 public:
  explicit ListingCommunicator(Communicator& inner) : inner_(inner) {}
  struct Call {
    CollectiveKind kind;
    std::size_t bytes;       // As the call had it.
    std::int64_t group = 0;  // Equal in calls that were made together; 0 for one by itself.
    bool placed = false;     // Both sides lie in memory that buffer() gave.
  };
  std::vector<Call> calls;
  bool silent = false;  // Nothing is exchanged or listed: results are those of the last exchange.

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void all_gather(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    if (passes(CollectiveKind::all_gather, to, from, bytes))
      inner_.all_gather(stream, name, to, from, bytes);
  }
  void all_to_all(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    if (passes(CollectiveKind::all_to_all, to, from, bytes))
      inner_.all_to_all(stream, name, to, from, bytes);
  }
  void reduce_scatter(const Stream& stream, const CollectiveName& name, float* to,
                      const float* from, std::size_t bytes) override {
    if (passes(CollectiveKind::reduce_scatter, to, from, bytes))
      inner_.reduce_scatter(stream, name, to, from, bytes);
  }
  void all_reduce(const Stream& stream, const CollectiveName& name, float* data,
                  std::size_t bytes) override {
    if (passes(CollectiveKind::all_reduce, data, data, bytes))
      inner_.all_reduce(stream, name, data, bytes);
  }
  DeviceBuffer buffer(Device& device, std::size_t bytes) override;
  void reserve(std::size_t bytes) override { inner_.reserve(bytes); }
  void grouped(const std::function<void()>& calls) override {
    if (silent) return calls();
    group_ = ++groups_;
    inner_.grouped(calls);
    group_ = 0;
  }
  void launch(const Stream& stream, const Ledger& graph,
              const std::function<void()>& body) override {
    inner_.launch(stream, graph, body);
  }
  void barrier() override { inner_.barrier(); }
  std::vector<std::string> all_gather_object(const std::string& words) override {
    return inner_.all_gather_object(words);
  }

 private:
  bool passes(CollectiveKind kind, const void* to, const void* from, std::size_t bytes);
  bool is_placed(const void* memory) const;
  Communicator& inner_;
  // Memory that buffer() gave, released memory included.
  std::vector<std::pair<const std::byte*, std::size_t>> places_;
  std::int64_t groups_ = 0, group_ = 0;
};

// Returns the bytes that leave a rank by the call, counted as in the figures of NCCL's tests.
double bytes_sent(const ListingCommunicator::Call& call, int ranks);

// Returns the seconds of all these calls in memory of the same kind, one after the other on a
// stream of their own with nothing else on the device: the median of a few runs, of the slowest
// rank. All ranks call it.
double seconds_of(const std::vector<ListingCommunicator::Call>& calls, Device& device,
                  Communicator& communicator);
// The same for bare calls of the library, without the engine: nothing is compared, counted or
// observed.
double seconds_of(const std::vector<ListingCommunicator::Call>& calls, Device& device,
                  Communicator& communicator, BackendCommunicator& library);

// Returns the largest value of all ranks. All ranks call it.
double largest(double value, Communicator& communicator);

}  // namespace lockstep
