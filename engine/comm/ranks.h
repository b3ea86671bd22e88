// Virtual ranks: threads of one process of which exactly one runs at a time. The turn passes at
// barriers, in a seeded order, and never inside of a capture, so runs with equal seeds make equal
// calls in equal order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "engine/comm/communicator.h"
#include "engine/rendezvous/store.h"

namespace lockstep {

// Runs `body` once for each rank, each on a thread of its own, all on one device; every rank has
// its own streams, events and memory. Returns when all have ended and rethrows the first exception:
// the other threads are woken where they wait, and unwind by an exception that is neither reported
// nor a std::exception. A rank that ends while others wait for it is a CollectiveHang. size == 1
// runs on the calling thread. `seed` chooses who goes first after each barrier.
void run_ranks(Device& device, int size, std::uint64_t seed,
               const std::function<void(Communicator&)>& body);

// The same for the ranks of one process of several, each with a store of its own, which outlives
// the call.
void run_ranks(Device& device, std::span<const std::unique_ptr<Store>> stores, std::uint64_t seed,
               const std::function<void(Communicator&)>& body);

}  // namespace lockstep
