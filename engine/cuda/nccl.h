// NCCL, opened when the first communicator is asked for.
#pragma once

#include "engine/backend_communicator.h"

namespace lockstep {

// Both throw DeviceError with the library's words, or that there is none.
CommunicatorId new_nccl_id();
BackendCommunicator* join_nccl(const CommunicatorId& id, int rank, int size);

}  // namespace lockstep
