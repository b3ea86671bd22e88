// Runs the engine as a scenario asks for it: the ranks of this process on one device, each with a
// trainer.
#pragma once

#include <functional>

#include "engine/comm/communicator.h"
#include "engine/train/trainer.h"
#include "harness/judge/local_ranks.h"

namespace lockstep {

struct ThreadRank {
  Communicator& communicator;
  Trainer& trainer;
  int number() const { return communicator.rank(); }
};

// Returns the options of a rank, into which the communicator is then put. If `ranks` is null, all
// ranks of the scenario run here.
using RankOptions = std::function<TrainerOptions(int rank)>;
void with_trainers(Device& device, const Scenario& scenario, const DataSource& data,
                   const RankOptions& options, const std::function<void(ThreadRank&)>& body,
                   const LocalRanks* ranks = nullptr);

// Runs every step and evaluation of the scenario on every rank without comparing anything, then
// `end` on each rank.
void train_to_the_end(Device& device, const Scenario& scenario, const DataSource& data,
                      const RankOptions& options, const std::function<void(ThreadRank&)>& end);

}  // namespace lockstep
