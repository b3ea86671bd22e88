// NCCL, opened when the first communicator is created.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/device/backend_communicator.h"

namespace lockstep {

// Both throw DeviceError with the library's words, or that there is none.
CommunicatorId new_nccl_id();
// Without an id, NCCL is not asked: two ranks that only send to one another, by copies
// (PeerCopies). `takes` is told the bytes of device memory that it takes for windows, and, below
// zero, gives back.
BackendCommunicator* join_nccl(const CommunicatorId& id, int rank, int size,
                               std::function<void(std::int64_t)> takes);

}  // namespace lockstep
