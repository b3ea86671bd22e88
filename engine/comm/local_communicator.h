// The communicator of virtual ranks: copies between the memories of one device, ordered by events, so that a judge at
// the device's door sees every edge between ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/comm/turns.h"
#include "engine/rendezvous/collective_ledger.h"

namespace lockstep {

// What a rank shows the others.
struct LocalRank {
  explicit LocalRank(Device& device) : ready(device, "peer has written"), done(device, "peer has read"), over(device) {}
  Event ready;  // Its `from` can be read.
  Event done;   // It has read the others' `from`.
  Event over;   // Its last call is over.
  const void* from = nullptr;
  int last_stream = -1;
  CollectiveLedger ledger;
  std::string words[2];  // By the parity of the call: this rank may be a call ahead of those that read.
};

struct LocalRanks {
  LocalRanks(Device& device, int size, std::uint64_t seed);
  std::string report();  // Who waits in which call, who has ended after which.
  Device& device;
  Turns turns;
  std::vector<LocalRank> ranks;
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
  void meet() override;
  std::vector<std::string> tell(const std::string& words) override;

 private:
  LocalRank& at(int rank) const { return all_.ranks[static_cast<std::size_t>(rank)]; }
  void post(const Stream& stream, CollectiveKind kind, const CollectiveName& name, const void* from, std::size_t bytes);
  void pass_the_turn();
  void compare();
  void take(const Stream& stream, int peer, void* to, const void* from, std::size_t bytes);
  void finish(const Stream& stream);
  LocalRanks& all_;
  int rank_;
  LocalRank& me_;
};

}  // namespace lockstep
