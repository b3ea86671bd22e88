#include "harness/expect/run_estimate.h"

#include <algorithm>

#include "engine/memory/memory_plan.h"
#include "harness/expect/parameter_table.h"
#include "scenarios/documents/layout.h"
#include "scenarios/expert_ranks.h"

namespace lockstep {
namespace {

constexpr double kWord = 4;

// Documents of the first step: their number, tokens and pairs of tokens that attention looks at.
struct StepTotals {
  double documents = 0, tokens = 0, pairs = 0;
};

void add(StepTotals& totals, const MicrobatchLengths& lengths, double times) {
  for (const std::int64_t length : lengths) {
    const auto tokens = static_cast<double>(length);
    totals.documents += times;
    totals.tokens += times * tokens;
    totals.pairs += times * tokens * (tokens + 1) / 2;
  }
}

// Listed documents are counted. Drawn ones are judged by one microbatch, since the others are drawn
// alike, and those at a path by a full pack.
StepTotals totals_of_a_step(const Scenario& scenario) {
  const double count = static_cast<double>(global_microbatches(scenario, 0));
  StepTotals totals;
  if (reads_bytes(scenario.data)) {
    const auto rows = static_cast<double>(scenario.data.pack_length);
    return {count, count * rows, count * rows};
  }
  if (scenario.data.kind == DataKind::distribution) {
    add(totals, microbatch_lengths(scenario, 0, 0), count);
    return totals;
  }
  if (scenario.data.documents.empty()) return totals;
  const auto lists = std::ssize(scenario.data.documents.front());
  const auto all = global_microbatches(scenario, 0);
  for (std::int64_t m = 0; m < std::min(all, lists); ++m) {
    const std::int64_t times = (all - m + lists - 1) / lists;
    add(totals, microbatch_lengths(scenario, 0, m), static_cast<double>(times));
  }
  return totals;
}

// Parameters that one token is multiplied with.
double parameters_in_use(const Scenario& scenario) {
  const Scenario::Model::Moe& moe = scenario.model.moe;
  double used = 0;
  for (const ParameterShape& one : parameter_table(scenario)) {
    const auto count = static_cast<double>(one.rows) * static_cast<double>(one.cols);
    const bool routed = one.name.find(".experts.") != std::string::npos;
    const bool looked_up = one.name == "embedding.weight" && !scenario.model.tied_embedding;
    if (looked_up) continue;
    used += routed ? count * static_cast<double>(std::min(moe.top_k, moe.experts)) /
                         static_cast<double>(moe.experts)
                   : count;
  }
  return used;
}

}  // namespace

double microbatches_of_a_rank(const Scenario& scenario) {
  const Scenario::Training& training = scenario.training;
  double sum = 0, count = static_cast<double>(training.microbatches);
  std::int64_t since = 0;
  for (const auto& change : training.change_microbatches_at) {
    sum += count * static_cast<double>(change.step - since);
    since = change.step;
    count = static_cast<double>(change.microbatches);
  }
  return sum + count * static_cast<double>(training.steps - since);
}

RunEstimate estimate_run(const Scenario& scenario) {
  RunEstimate estimate;
  double parameters = 0, experts = 0;
  for (const ParameterShape& one : parameter_table(scenario)) {
    const auto count = static_cast<double>(one.rows) * static_cast<double>(one.cols);
    parameters += count;
    if (one.name.find(".experts.") != std::string::npos) experts += count;
  }
  const auto ranks = static_cast<double>(scenario.parallel.data);
  // Weight, gradient and two moments; of each a rank has its share where the strategy shards it.
  const Sharding strategy = scenario.fsdp.strategy;
  const double whole = strategy == Sharding::no_shard      ? 4
                       : strategy == Sharding::optim       ? 2
                       : strategy == Sharding::optim_grads ? 1
                                                           : 0;
  estimate.state = parameters * kWord * (whole + (4 - whole) / ranks);
  // A rank has its share of experts that lie apart, but gradients of as many sources.
  const double divided = whole > 1 ? whole - 1 : whole;
  const auto apart = static_cast<double>(expert_ranks(scenario));
  estimate.state -= experts * kWord * divided * (1 - 1 / apart);
  const auto elements = static_cast<double>(activation_elements(scenario));
  // The engine stores most activations in its precision, the reference all of them in fp32.
  const std::vector<Numerics>& numerics = scenario.numerics;
  const bool is_bf16 =
      std::all_of(numerics.begin(), numerics.end(), [](Numerics n) { return n != Numerics::fp32; });
  const double stored = elements * (is_bf16 ? kWord / 2 : kWord);
  const auto in_flight =
      std::min(scenario.training.in_flight, most_microbatches(scenario.training));
  estimate.activations = stored * static_cast<double>(in_flight);
  if (scenario.cuda_graph.shared_memory) {
    std::int64_t saved = 0;
    for (int stage = 0; stage < scenario.parallel.pipeline; ++stage)
      saved += plan_memory(scenario, stage).saved();
    estimate.activations = std::max(0.0, estimate.activations - static_cast<double>(saved));
  }
  const StepTotals step = totals_of_a_step(scenario);
  estimate.documents =
      step.tokens * 2 * kWord + step.documents * static_cast<double>(sizeof(Document));
  // Forward once, backward twice.
  const auto attention_layers = static_cast<double>(
      std::count(scenario.model.pattern.begin(), scenario.model.pattern.end(), '*'));
  const double width =
      static_cast<double>(scenario.model.attention.heads * scenario.model.attention.head_dim);
  const auto microbatches =
      static_cast<double>(std::max<std::int64_t>(1, global_microbatches(scenario, 0)));
  estimate.multiply_adds =
      3 * (parameters_in_use(scenario) * step.tokens + 2 * attention_layers * width * step.pairs) /
      microbatches * ranks * microbatches_of_a_rank(scenario);
  estimate.reference = parameters * kWord * 4 + elements * kWord;
  return estimate;
}

}  // namespace lockstep
