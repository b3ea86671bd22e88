// The engine as a scenario asks for it: the ranks of this process, on one device, each with a
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

// `options` of a rank; the communicator is put in here. `ranks` null: all of the scenario's.
using RankOptions = std::function<TrainerOptions(int rank)>;
void with_trainers(Device& device, const Scenario& scenario, const DataSource& data,
                   const RankOptions& options, const std::function<void(ThreadRank&)>& body,
                   const LocalRanks* ranks = nullptr);

// Every step and evaluation of the scenario, on every rank; nobody looks. `end` follows on each
// rank.
void train_to_the_end(Device& device, const Scenario& scenario, const DataSource& data,
                      const RankOptions& options, const std::function<void(ThreadRank&)>& end);

}  // namespace lockstep
