// The communicator of virtual ranks: copies between the memories of one device, ordered by events,
// so that an observer of the device sees every edge between ranks.
#pragma once

#include <memory>
#include <string>
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
  CollectiveLedger ledger;
  std::string words[2];  // Indexed by the parity of the call: this rank may be a call ahead of the
                         // ranks that read.
};

struct LocalRanks {
  LocalRanks(Device& device, int size, std::uint64_t seed);
  std::string report();  // Says which rank waits in which call, and which has ended after which.
  Device& device;
  CooperativeThreads threads;
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
  void barrier() override;
  std::vector<std::string> all_gather_object(const std::string& words) override;

 private:
  LocalRank& at(int rank) const { return lockstep::at(all_.ranks, rank); }
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
