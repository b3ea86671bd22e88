// The communicator of processes with a GPU each: the data goes through NCCL, on the streams given.
// The hosts compare each call through a store before they make it, and a watchdog ends the process
// when a call is not done within the deadline.
#pragma once

#include <memory>

#include "engine/comm/communicator.h"
#include "engine/rendezvous/store.h"

namespace lockstep {

// Makes the communicator of the store's rank; the store outlives it, as with
// make_store_communicator. Captured calls are compared when their graph is launched.
std::unique_ptr<Communicator> make_nccl_communicator(Device& device, Store& store);

// NCCL takes some tenths of a second to make a communicator, longer than a run of a small scenario.
// From now on those of runs that end well stay in this process, for its next runs.
void keep_nccl_communicators();

// Returns the NCCL communicator behind it, for measurements; null for any other kind.
BackendCommunicator* library_of(Communicator& communicator);

// The ways that this rank has connected, and how many of them have an NCCL communicator: all others
// are served by copies. Zeros for any other kind of communicator.
struct ConnectedWays {
  int all = 0, over_library = 0;
};
ConnectedWays connected_ways(const Communicator& communicator);

}  // namespace lockstep
