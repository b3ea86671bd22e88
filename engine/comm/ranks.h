// Virtual ranks: threads of one process of which exactly one runs at a time. The turn passes where all ranks meet, in a
// seeded order, never inside of a capture; so every run with equal seeds makes equal calls in equal order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "engine/comm/communicator.h"
#include "engine/rendezvous/meeting.h"

namespace lockstep {

// Runs `body` once for each rank, each on a thread of its own, all on one device (streams, events and memory of each
// are its own). Returns when all have ended; rethrows what the first of them threw: the others are woken where they
// wait and unwind (the exception that does so is not reported and no std::exception). A rank that ends while others
// wait for it is a CollectiveHang. size == 1 runs on the calling thread. `seed` chooses who goes first after each
// meeting.
void run_ranks(Device& device, int size, std::uint64_t seed, const std::function<void(Communicator&)>& body);

// The same for the ranks of one process of several, each with a meeting of its own, which outlives the call.
void run_ranks(Device& device, std::span<const std::unique_ptr<Meeting>> meetings, std::uint64_t seed,
               const std::function<void(Communicator&)>& body);

}  // namespace lockstep
