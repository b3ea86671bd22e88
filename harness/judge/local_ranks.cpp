#include "harness/judge/local_ranks.h"

#include <sstream>
#include <vector>

#include "engine/comm/nccl_communicator.h"
#include "engine/comm/ranks.h"
#include "harness/base/errors.h"
#include "harness/costs/needless_rounds.h"
#include "scenarios/pass_order.h"

namespace lockstep {

namespace {

// Returns the first line of `one` that `other` does not have in that place, and what it has
// instead.
std::string first_difference(const std::string& one, const std::string& other) {
  std::istringstream ones(one), others(other);
  std::string line, its;
  while (std::getline(ones, line) && std::getline(others, its) && line == its) continue;
  return "`" + line + "`, and `" + its + "`";
}

}  // namespace

void require_same_run(Communicator& communicator, const std::string& same) {
  const std::vector<std::string> said = communicator.all_gather_object(same);
  for (std::size_t rank = 1; rank < said.size(); ++rank) {
    if (said[rank] == said[0]) continue;
    throw RequestError("rank 0 runs " + first_difference(said[0], said[rank]) + " runs rank " +
                       std::to_string(rank) + ": all processes need one build and one scenario");
  }
}

void LocalRanks::run(Device& device, const std::function<void(Communicator&)>& body) const {
  if (!apart()) return run_ranks(device, count, seed, body);
  const auto checked = [&](Communicator& communicator) {
    if (!same.empty()) require_same_run(communicator, same);
    body(communicator);
  };
  if (!over_nccl) {
    for (const std::unique_ptr<Store>& store : meetings) {
      store->on_post = [rounds = NeedlessRounds(count)](const CollectiveCall& call,
                                                        std::size_t filled) mutable {
        rounds.posts(call, filled);
      };
    }
    return run_ranks(device, meetings, seed, checked);
  }
  device.place = {.rank = first()};
  checked(*make_nccl_communicator(device, *meetings.front()));
}

// The order of threads has a seed of its own, not the schedule's, since a schedule that was found
// by tags must meet the same calls when it runs again.
LocalRanks all_local_ranks(const Scenario& scenario) {
  return {.count = static_cast<int>(ranks_of_run(scenario)),
          .seed = static_cast<std::uint64_t>(scenario.training.seed),
          .meetings = {},
          .over_nccl = false,
          .gpu = 0};
}

}  // namespace lockstep
