// The ranks that this process has: all of a run, as threads, or one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/comm/communicator.h"
#include "engine/rendezvous/store.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct LocalRanks {
  int count = 1;           // For the run.
  std::uint64_t seed = 1;  // For the order of threads.
  // One store for each process here, where the run has several processes.
  std::span<const std::unique_ptr<Store>> meetings = {};
  bool over_nccl = false;  // Their data goes through the library, and their GPU is
  int gpu = 0;             // this one.
  // Where a launcher started them: what must be equal in all processes, in lines.
  std::string same = "";

  bool apart() const { return !meetings.empty(); }
  int first() const { return apart() ? meetings.front()->rank() : 0; }
  int here() const { return apart() ? static_cast<int>(meetings.size()) : count; }
  // `body` once for each of them.
  void run(Device& device, const std::function<void(Communicator&)>& body) const;
};

// Throws RequestError where another rank says otherwise, with the first line that differs. All
// ranks call it.
void require_same_run(Communicator& communicator, const std::string& same);

LocalRanks all_local_ranks(const Scenario& scenario);

}  // namespace lockstep
