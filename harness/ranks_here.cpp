#include "harness/ranks_here.h"

#include "engine/nccl_communicator.h"
#include "engine/ranks.h"

namespace lockstep {

void RanksHere::run(Device& device, const std::function<void(Communicator&)>& body) const {
  if (!apart()) return run_ranks(device, count, seed, body);
  if (!over_nccl) return run_ranks(device, meetings, seed, body);
  device.place = {.rank = first()};
  body(*make_nccl_communicator(device, *meetings.front()));
}

// The order of turns is not the schedule's: a schedule that was found by tags must meet the same calls again.
RanksHere all_ranks_here(const Scenario& scenario) {
  return {.count = static_cast<int>(scenario.parallel.data),
          .seed = static_cast<std::uint64_t>(scenario.training.seed),
          .meetings = {},
          .over_nccl = false,
          .gpu = 0};
}

}  // namespace lockstep
