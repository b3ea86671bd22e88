// Checks of what the processor must do before the contract holds on it.
#pragma once

#include <string>

namespace lockstep {

// Checks the calling thread: it rounds to nearest, keeps subnormals, and has the contract's
// fingerprint. "" if so, else the reason why it cannot be trusted. Takes about a millisecond.
std::string host_complaint();

}  // namespace lockstep
