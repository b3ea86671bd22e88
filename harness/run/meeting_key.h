// The key by which the processes of a run prove over the network that they belong to it.
#pragma once

#include <string>

#include "engine/rendezvous/launch_environment.h"

namespace lockstep {

// LOCKSTEP_MEETING_KEY, or the text of the file that LOCKSTEP_MEETING_KEY_FILE names, without white
// space at its end; "" if neither is set. Throws RequestError for a key that is too short, and for
// a file that others may read.
std::string meeting_key(const Environment& environment);

}  // namespace lockstep
