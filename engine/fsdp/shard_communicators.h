// The ranks between which a bucket is exchanged: those of the pipeline stage, or those that have
// the same experts (parallel.expert).
#pragma once

#include <vector>

#include "engine/comm/communicator.h"
#include "engine/parameters/shard_layout.h"

namespace lockstep {

struct ShardCommunicators {
  Communicator& stage;
  Communicator* replicas = nullptr;  // Null unless experts lie on several ranks.

  // Calls `calls`, in one group for each communicator, with those of `all` that are exchanged by
  // it. An element of `all` has the number of its `bucket`. The calls of all ranks come last: who
  // waits for them waits for all that the others have waited for before.
  template <class One, class Calls>
  void each(const ShardLayout& layout, const std::vector<One>& all, const Calls& calls) const {
    std::vector<One> of_stage, of_replicas;
    for (const One& one : all)
      (at(layout.buckets, one.bucket).sources == 1 ? of_stage : of_replicas).push_back(one);
    if (!of_replicas.empty()) replicas->grouped([&] { calls(*replicas, of_replicas); });
    stage.grouped([&] { calls(stage, of_stage); });
  }
};

}  // namespace lockstep
