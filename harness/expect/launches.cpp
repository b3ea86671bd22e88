#include "harness/expect/launches.h"

#include "kernels/core/at.h"
#include "scenarios/documents/layout.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// The needs of a microbatch on all ranks: a graph must be made for the largest.
GraphNeed need_of_ranks(const Scenario& scenario, const StepData& step, std::int64_t microbatch) {
  const std::int64_t ranks = scenario.parallel.data;
  GraphNeed need;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const Microbatch& one = at(step.microbatches, microbatch * ranks + r);
    need = larger(need, need_of(scenario.data, lengths_of(one)));
  }
  return need;
}

void fall_back(Unfit reason, Launches& launches) {
  ++(reason == Unfit::no          ? launches.cut
     : reason == Unfit::documents ? launches.too_many
                                  : launches.too_long);
}

// A graph of the whole step, one on each stage, runs all microbatches or none. Passes that end
// before the step does are no decision yet.
Launches launches_of_whole(const Scenario& scenario, const StepData& step, std::int64_t first,
                           std::int64_t end, std::int64_t count) {
  GraphNeed whole;
  for (std::int64_t m = 0; m < count; ++m) whole = larger(whole, need_of_ranks(scenario, step, m));
  const Unfit reason = unfit(scenario, whole);
  Launches launches;
  const bool fits = first == 0 && end == count && reason == Unfit::no;
  if (fits) launches.replays = scenario.parallel.pipeline;
  if (launches.replays == 0 && end == count) fall_back(reason, launches);
  return launches;
}

Launches launches_of(const Scenario& scenario, std::int64_t regions, const StepData& step,
                     std::int64_t first, std::int64_t end) {
  const std::int64_t count = std::ssize(step.microbatches) / scenario.parallel.data;
  if (scenario.cuda_graph.impl == GraphImpl::full_iteration)
    return launches_of_whole(scenario, step, first, end, count);
  if (regions == 0) return {};
  Launches launches;
  for (std::int64_t m = first; m < end; ++m) {
    const Unfit reason = unfit(scenario, need_of_ranks(scenario, step, m));
    reason == Unfit::no ? void(launches.replays += 2 * regions) : fall_back(reason, launches);
  }
  return launches;
}

}  // namespace

Launches& Launches::operator+=(const Launches& more) {
  replays += more.replays;
  too_many += more.too_many;
  too_long += more.too_long;
  cut += more.cut;
  return *this;
}

Launches launches_of(const Scenario& scenario, std::int64_t regions, const StepData& step) {
  const std::int64_t count = std::ssize(step.microbatches) / scenario.parallel.data;
  return launches_of(scenario, regions, step, 0, count);
}

std::int64_t evaluation_replays(const Scenario& scenario, std::int64_t regions,
                                const StepData& step) {
  const std::int64_t replays = launches_of(scenario, regions, step).replays;
  if (scenario.cuda_graph.impl == GraphImpl::full_iteration) return replays;
  return scenario.cuda_graph.evaluation == GraphEvaluation::replay ? replays / 2 : 0;
}

std::vector<Expectation> launches_of_part(const Scenario& scenario, const DataSource& data,
                                          const RunPoint& from, const RunPoint& to) {
  const std::int64_t regions = graph_regions(scenario), every = scenario.training.eval_every;
  Launches sum;
  std::int64_t evaluations = 0;
  for (std::int64_t step = from.step; step <= to.step && with_graphs(scenario); ++step) {
    const bool whole = step < to.step;
    const std::int64_t first = step == from.step ? from.microbatch : 0;
    const std::int64_t end = whole ? scenario.training.microbatches_at(step) : to.microbatch;
    if (step < scenario.cuda_graph.warmup_steps || first == end) continue;
    sum += launches_of(scenario, regions, data.training(step), first, end);
    if (whole && every > 0 && (step + 1) % every == 0)
      evaluations += evaluation_replays(scenario, regions, data.evaluation(step));
  }
  const std::int64_t stages = scenario.parallel.pipeline;
  const std::string why = "the part of the run from step " + std::to_string(from.step) +
                          ", microbatch " + std::to_string(from.microbatch);
  const auto exactly = [&](Counter counter, std::int64_t value) {
    return Expectation{counter, value, value, why};
  };
  return {exactly(Counter::graph_replays, sum.replays + evaluations),
          exactly(Counter::evaluation_replays, evaluations),
          exactly(Counter::fallbacks_documents, stages * sum.too_many),
          exactly(Counter::fallbacks_length, stages * sum.too_long),
          exactly(Counter::fallbacks_cut, stages * sum.cut)};
}

}  // namespace lockstep
