// Refuses runs that need more memory than this machine has.
#pragma once

#include <string>

#include "scenarios/scenario.h"

namespace lockstep {

struct MemoryUse {
  bool engine_on_host = true;  // False where the device has memory of its own.
  bool reference = true;       // The oracle runs beside the engine.
  double ranks = 1;            // Ranks of the engine on this machine.
};

// What judging `scenario` on this device uses.
MemoryUse memory_use(const Scenario& scenario, const std::string& device);

// The least memory of the host that it takes, in bytes.
double memory_needed(const Scenario& scenario, const MemoryUse& use);

// Why the machine's memory is not enough, and which keys to lower; "" where it is enough. This is
// asked before a worker starts, because the kernel kills a process that takes too much, and perhaps
// others with it, without a message.
std::string lack_of_memory(const Scenario& scenario, const MemoryUse& use);
// Throws WorldError where the memory is not enough.
void require_memory(const Scenario& scenario, const MemoryUse& use);

}  // namespace lockstep
