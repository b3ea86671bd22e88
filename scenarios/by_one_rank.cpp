#include "scenarios/by_one_rank.h"

namespace lockstep {

Scenario by_one_rank(Scenario scenario) {
  Scenario::Training& training = scenario.training;
  training.microbatches *= scenario.parallel.data;
  for (Scenario::MicrobatchChange& change : training.change_microbatches_at) {
    change.microbatches *= scenario.parallel.data;
  }
  scenario.parallel = {};
  scenario.fsdp = {};
  return scenario;
}

}  // namespace lockstep
