// The communicator of processes with a GPU each: parts go through the library, on the streams given. The hosts compare
// their calls in a meeting before each, and a watchdog ends the process when a call is not done within the deadline.
#pragma once

#include <memory>

#include "engine/comm/communicator.h"
#include "engine/rendezvous/meeting.h"

namespace lockstep {

// Of the process's rank; the meeting outlives it, as with make_meeting_communicator. Captured calls are compared when
// their graph is launched.
std::unique_ptr<Communicator> make_nccl_communicator(Device& device, Meeting& meeting);

// What such a communicator calls; null for any other. For measurements.
BackendCommunicator* library_of(Communicator& communicator);

}  // namespace lockstep
