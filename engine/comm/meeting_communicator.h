// The communicator of processes without a library: parts go over the host and through the meeting, which is memory that
// they share or a network.
#pragma once

#include <memory>

#include "engine/comm/communicator.h"
#include "engine/rendezvous/meeting.h"

namespace lockstep {

// Of the process's rank, for one device; the meeting outlives it. Every process makes as many, in the same order. Its
// calls return when the other ranks have made them too, and a launch when all calls of its graph are made. Where a
// process has several ranks nothing is captured.
std::unique_ptr<Communicator> make_meeting_communicator(Device& device, Meeting& meeting);

}  // namespace lockstep
