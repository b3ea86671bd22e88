// The communicator of processes without NCCL: the data goes over the hosts and through the store,
// which is shared memory or a TCP server.
#pragma once

#include <memory>

#include "engine/comm/communicator.h"
#include "engine/rendezvous/store.h"

namespace lockstep {

// Makes the communicator of the store's rank for one device; the store outlives it. Every process
// makes equally many, in the same order. A call returns when the other ranks have made it too, and
// a launch when all calls of its graph are made. A process with several ranks captures nothing.
std::unique_ptr<Communicator> make_store_communicator(Device& device, Store& store);

}  // namespace lockstep
