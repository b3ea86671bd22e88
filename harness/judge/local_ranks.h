// The ranks of a run that live in this process: all of them, as threads, or one.
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
  int count = 1;           // Ranks of the run.
  std::uint64_t seed = 1;  // Selects the order of threads.
  // Empty if the whole run is in this process; else one store for each rank here.
  std::span<const std::unique_ptr<Store>> meetings = {};
  bool over_nccl = false;  // Whether the ranks exchange data through NCCL, and
  int gpu = 0;             // the GPU that they use.
  // Lines that must be equal in all processes that a launcher started.
  std::string same = "";

  bool apart() const { return !meetings.empty(); }
  int first() const { return apart() ? meetings.front()->rank() : 0; }
  int here() const { return apart() ? static_cast<int>(meetings.size()) : count; }
  // Runs `body` once for each rank here.
  void run(Device& device, const std::function<void(Communicator&)>& body) const;
};

// Throws RequestError with the first line of `same` that differs on another rank. All ranks call
// it.
void require_same_run(Communicator& communicator, const std::string& same);

LocalRanks all_local_ranks(const Scenario& scenario);

}  // namespace lockstep
