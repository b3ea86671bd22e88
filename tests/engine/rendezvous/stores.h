// Where the processes of a test meet: in memory that they share, or at a port of this machine.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <ostream>

#include "engine/rendezvous/shared_memory_store.h"
#include "engine/rendezvous/tcp_store.h"
#include "tests/engine/rendezvous/raw_peer.h"
#include "tests/support/program.h"

namespace lockstep::test {

enum class Over { memory, network };
inline std::ostream& operator<<(std::ostream& out, Over over) {
  return out << (over == Over::memory ? "memory" : "network");
}

// The stores of the ranks of one run; made before there are processes.
class Stores {
 public:
  Stores(Over over, int ranks) : over_(over), ranks_(ranks), address_{"127.0.0.1", free_port()} {
    if (over == Over::memory) segment_.emplace(SharedMemoryStore::create(place(), ranks));
  }
  std::unique_ptr<Store> join(int rank, double deadline) const {
    if (over_ == Over::memory)
      return std::make_unique<SharedMemoryStore>(place(), rank, ranks_, deadline);
    return std::make_unique<TcpStore>(address_, RunIdentity{"test", "the key of a test"}, rank,
                                      ranks_, deadline);
  }
  const TcpAddress& address() const { return address_; }

 private:
  SharedPlace place() const { return {folder_ / "ranks"}; }

  Over over_;
  int ranks_;
  TcpAddress address_;
  TemporaryFolder folder_;
  std::optional<SharedSegment> segment_;
};

}  // namespace lockstep::test
