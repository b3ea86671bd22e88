// NCCL, opened when the first communicator is created.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/device/backend_communicator.h"

namespace lockstep {

// Both throw DeviceError with the library's words, or that there is none.
CommunicatorId new_nccl_id();
// Without an id, NCCL is not asked: two ranks that only send to one another, by copies
// (PeerCopies). `takes` is told the bytes of device memory that it takes for windows, and, below
// zero, gives back.
BackendCommunicator* join_nccl(const CommunicatorId& id, int rank, int size,
                               std::function<void(std::int64_t)> takes);

// A communicator that was told to keep() stays when it ends well, with nothing under way, for the
// next run of this process on the same GPU. Returns the ids of those in which this rank has that
// number; join_nccl() takes the communicator out if it is given one of them.
std::vector<CommunicatorId> spare_nccl_ids(int rank, int size);

}  // namespace lockstep
