// The communicator of virtual ranks: copies between the memories of one device, ordered by events,
// so that an observer of the device sees every edge between ranks.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/comm/cooperative_threads.h"
#include "engine/rendezvous/collective_ledger.h"
#include "kernels/core/at.h"

namespace lockstep {

// The state of a rank that the other ranks read.
struct LocalRank {
  explicit LocalRank(Device& device)
      : ready(device, "peer has written"),
        done(device, "peer has read"),
        over(device, "call is over") {}
  Event ready;  // Its `from` can be read.
  Event done;   // It has read the others' `from`.
  Event over;   // Its last call is over.
  const void* from = nullptr;
  int last_stream = -1;
  std::int64_t arrivals = 0;  // How often it came to a meeting of a group.
  CollectiveLedger ledger;
  std::string words[2];  // Indexed by the parity of the call: this rank may be a call ahead of the
                         // ranks that read.
};

// A message is what one rank sends to another. It is used again, with its events, once it is taken.
struct LocalMessage {
  explicit LocalMessage(Device& device)
      : ready(device, "peer has sent"), read(device, "peer has received") {}
  CollectiveCall call;
  const void* from = nullptr;
  Event ready;            // `from` can be read.
  Event read;             // It has been read.
  bool is_taken = false;  // The receiver has recorded `read`.
};
struct LocalWay {
  LocalMessage& add(Device& device);
  std::deque<std::unique_ptr<LocalMessage>> sent, spare;
};

// Ranks that make collectives together: all of the run, or a group of them.
struct LocalRanks {
  LocalRanks(Device& device, CooperativeThreads& threads, std::vector<int> numbers);
  bool are_all() const { return whole == nullptr; }
  Device& device;
  CooperativeThreads& threads;
  const std::vector<int> numbers;  // The threads of these ranks.
  std::vector<LocalRank> ranks;
  // Only all ranks have these: what is sent, by sender and receiver, and groups by their threads.
  std::map<std::pair<int, int>, LocalWay> ways;
  std::map<std::vector<int>, std::unique_ptr<LocalRanks>> groups;
  const LocalRanks* whole = nullptr;      // That this is a group of; null: it has all.
  std::map<int, CollectiveCall> awaited;  // What a rank waits to receive.
  std::string report();  // Says which rank waits in which call, and which has ended after which.
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(LocalRanks& all, int rank) : all_(all), rank_(rank), me_(at(rank)) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(all_.ranks.size()); }
  void all_gather(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override;
  void all_to_all(const Stream& stream, const CollectiveName& name, void* to, const void* from,
                  std::size_t bytes) override;
  void connect(const std::vector<TransferWay>& ways) override;
  void send(const Stream& stream, const CollectiveName& name, const void* from, std::size_t bytes,
            int to) override;
  void receive(const Stream& stream, const CollectiveName& name, void* to, std::size_t bytes,
               int from) override;
  void await_sent(const Stream& stream, int to) override;
  std::unique_ptr<Communicator> group(const std::vector<int>& ranks) override;
  void barrier() override;
  std::vector<std::string> all_gather_object(const std::string& words) override;

 private:
  LocalRank& at(int rank) const { return lockstep::at(all_.ranks, rank); }
  int thread() const { return lockstep::at(all_.numbers, rank_); }
  void post(const Stream& stream, CollectiveKind kind, const CollectiveName& name, const void* from,
            std::size_t bytes);
  void pass_the_turn();
  void compare();
  void take(const Stream& stream, int peer, void* to, const void* from, std::size_t bytes);
  void finish(const Stream& stream);
  LocalRanks& all_;
  int rank_;
  LocalRank& me_;
};

}  // namespace lockstep
