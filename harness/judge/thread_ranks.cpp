#include "harness/judge/thread_ranks.h"

namespace lockstep {

void with_trainers(Device& device, const Scenario& scenario, const DataSource& data,
                   const RankOptions& options, const std::function<void(ThreadRank&)>& body,
                   const LocalRanks* ranks) {
  const LocalRanks all = all_local_ranks(scenario);
  (ranks != nullptr ? *ranks : all).run(device, [&](Communicator& communicator) {
    TrainerOptions own = options(communicator.rank());
    own.communicator = &communicator;
    Trainer trainer(device, scenario, data, own);
    ThreadRank rank{communicator, trainer};
    body(rank);
  });
}

void train_to_the_end(Device& device, const Scenario& scenario, const DataSource& data,
                      const RankOptions& options, const std::function<void(ThreadRank&)>& end) {
  with_trainers(device, scenario, data, options, [&](ThreadRank& rank) {
    for (std::int64_t step = 0; step < scenario.training.steps; ++step) {
      rank.trainer.step();
      if (rank.trainer.evaluation_is_due()) rank.trainer.evaluate();
    }
    end(rank);
  });
}

}  // namespace lockstep
