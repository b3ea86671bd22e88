// A communicator that lists its calls, or makes none of them, and the time of the listed calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
  struct Transfers {
    std::int64_t sends = 0;
    double bytes = 0;
  };
  std::vector<Call> calls;
  Transfers transfers;  // Point to point, from this rank.
  bool silent = false;  // Nothing is exchanged or listed: results are those of the last exchange.
  bool brief = false;   // A byte goes in place of what is sent point to point.

  Communicator& inner() const { return inner_; }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void all_gather(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    if (passes(stream, CollectiveKind::all_gather, to, from, bytes))
      inner_.all_gather(stream, name, to, from, bytes);
  }
  void all_to_all(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override {
    if (passes(stream, CollectiveKind::all_to_all, to, from, bytes))
      inner_.all_to_all(stream, name, to, from, bytes);
  }
  void reduce_scatter(const Stream& stream, const CollectiveName& name, float* to,
                      const float* from, std::size_t bytes) override {
    if (passes(stream, CollectiveKind::reduce_scatter, to, from, bytes))
      inner_.reduce_scatter(stream, name, to, from, bytes);
  }
  void all_reduce(const Stream& stream, const CollectiveName& name, float* data,
                  std::size_t bytes) override {
    if (passes(stream, CollectiveKind::all_reduce, data, data, bytes))
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
  void connect_exchanges() override { inner_.connect_exchanges(); }
  void connect(const std::vector<TransferWay>& ways) override { inner_.connect(ways); }
  void send(const Stream& stream, const CollectiveName& name, const void* from, std::size_t bytes,
            int to) override;
  void receive(const Stream& stream, const CollectiveName& name, void* to, std::size_t bytes,
               int from) override {
    if (!silent) inner_.receive(stream, name, to, brief ? 1 : bytes, from);
  }
  void await_sent(const Stream& stream, int to) override {
    if (!silent) inner_.await_sent(stream, to);
  }
  void disconnect() override { inner_.disconnect(); }
  // Lists its own calls; `on_group` is told of it, and may silence it.
  std::unique_ptr<Communicator> group(const std::vector<int>& ranks) override;
  std::function<void(ListingCommunicator&)> on_group;
  void barrier() override { inner_.barrier(); }
  std::vector<std::string> all_gather_object(const std::string& words) override {
    return inner_.all_gather_object(words);
  }

 private:
  explicit ListingCommunicator(std::unique_ptr<Communicator> inner)
      : own_(std::move(inner)), inner_(*own_) {}
  bool passes(const Stream& stream, CollectiveKind kind, const void* to, const void* from,
              std::size_t bytes);
  bool is_placed(const void* memory) const;
  std::unique_ptr<Communicator> own_;  // A group has one.
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

// The exchanges of one kind in a step.
struct ExchangeTimes {
  std::int64_t calls = 0;
  double bytes = 0;  // Bytes that leave a rank.
  // Seconds of all calls by the engine, one after the other with nothing else on the device.
  double engine = 0;
  // Seconds on the streams of a step, with waits for the other ranks. Absent without a library.
  std::optional<double> in_step;
  // Seconds of bare calls of the library. Absent if there is none.
  std::optional<double> library;
};

using ExchangeCalls = std::vector<ListingCommunicator::Call>;
ExchangeCalls of_kind(const ExchangeCalls& calls, bool gathers);
// All but `in_step`. `library`: null if there is none. All ranks call it.
ExchangeTimes exchange_times(const ExchangeCalls& calls, Device& device, Communicator& communicator,
                             BackendCommunicator* library);

// Returns the value of each rank. All ranks call it.
std::vector<double> values_of_ranks(double value, Communicator& communicator);
// Returns the largest value of all ranks. All ranks call it.
double largest(double value, Communicator& communicator);

}  // namespace lockstep
