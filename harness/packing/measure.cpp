#include "harness/packing/measure.h"

#include <algorithm>

#include "harness/base/errors.h"
#include "harness/bench/steps.h"

namespace lockstep {
namespace {

// The same documents in every microbatch of one rank, so that nothing but the capacity differs.
Scenario with_documents(const Scenario& s, std::int64_t documents) {
  const std::int64_t count =
      std::clamp<std::int64_t>(documents, 1, std::max<std::int64_t>(s.data.pack_length / 2, 1));
  return with_one_pack(s, MicrobatchLengths(count, s.data.pack_length / count));
}

double seconds_of_a_microbatch(const Scenario& scenario, GraphImpl impl, const std::string& device,
                               double budget) {
  const StepTime time = time_steps(scenario, impl, device, budget);
  if (!time.not_run.empty()) throw RequestError("the model cannot be measured: " + time.not_run);
  return time.median / static_cast<double>(scenario.training.microbatches);
}

}  // namespace

PackCosts measure_costs(const Scenario& model, std::int64_t documents, std::int64_t most,
                        const std::string& device, double budget) {
  Scenario scenario = with_documents(model, documents);
  const GraphImpl impl =
      model.cuda_graph.impl == GraphImpl::none ? GraphImpl::partial : model.cuda_graph.impl;
  const auto fewest = std::ssize(scenario.data.documents.front().front());
  PackCosts costs;
  costs.eager = seconds_of_a_microbatch(without_graphs(scenario), GraphImpl::none, device, budget);
  std::int64_t capacity = fewest;
  while (true) {
    scenario.cuda_graph.max_packed_seqs = {capacity};
    costs.replay[capacity] = seconds_of_a_microbatch(scenario, impl, device, budget);
    if (capacity >= most) break;
    capacity = std::min(2 * capacity, most);
  }
  return costs;
}

}  // namespace lockstep
