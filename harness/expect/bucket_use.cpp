#include "harness/expect/bucket_use.h"

#include <algorithm>

#include "harness/expect/expectations.h"
#include "scenarios/documents/layout.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostMicrobatches = 20'000;

// The need of microbatch m on all ranks, since all take the same way.
GraphNeed need_of_ranks(const Scenario& scenario, std::int64_t step, std::int64_t m) {
  const std::int64_t ranks = scenario.parallel.data;
  GraphNeed most;
  for (std::int64_t r = 0; r < ranks; ++r) {
    most = larger(most, need_of(scenario.data, microbatch_lengths(scenario, step, m * ranks + r)));
  }
  return most;
}

}  // namespace

std::vector<std::int64_t> unused_buckets(const Scenario& scenario) {
  const Scenario::Training& training = scenario.training;
  const std::int64_t looked_at =
      training.steps * most_microbatches(training) * scenario.parallel.data;
  const bool few = looked_at <= kMostMicrobatches && can_be_counted_at_once(scenario);
  if (!with_graphs(scenario) || reads_bytes(scenario.data) || !few) return {};
  std::vector<std::int64_t> unused = scenario.cuda_graph.max_packed_seqs;
  const std::vector<std::int64_t> buckets = unused;
  const auto use = [&](const GraphNeed& need) {
    if (unfit(scenario, need) != Unfit::no) return;
    std::erase(unused, *std::ranges::lower_bound(buckets, need.slots));
  };
  for (std::int64_t step = scenario.cuda_graph.warmup_steps;
       step < training.steps && !unused.empty(); ++step) {
    GraphNeed of_step;
    for (std::int64_t m = 0; m < training.microbatches_at(step); ++m) {
      const GraphNeed need = need_of_ranks(scenario, step, m);
      of_step = larger(of_step, need);
      if (scenario.cuda_graph.impl == GraphImpl::partial) use(need);
    }
    if (scenario.cuda_graph.impl == GraphImpl::full_iteration) use(of_step);
  }
  return unused;
}

}  // namespace lockstep
