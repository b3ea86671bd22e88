#include "harness/judge/eager_reference.h"

#include <algorithm>
#include <bit>
#include <sstream>

#include "harness/base/bits.h"
#include "harness/case/verdict.h"
#include "harness/expect/blind_spots.h"
#include "harness/judge/eager_judge.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

// Returns the bits of a rank's losses as text, each followed by its router losses.
std::string words_of(const StepResult& result) {
  std::ostringstream words;
  const auto say = [&](float value) { words << std::bit_cast<std::uint32_t>(value) << ' '; };
  for (std::size_t m = 0; m < result.microbatch_losses.size(); ++m) {
    say(result.microbatch_losses[m]);
    const bool routed = m < result.microbatch_router_losses.size();
    words << (routed ? result.microbatch_router_losses[m].size() : 0) << ' ';
    for (std::size_t x = 0; routed && x < result.microbatch_router_losses[m].size(); ++x) {
      say(result.microbatch_router_losses[m][x].balance);
      say(result.microbatch_router_losses[m][x].z);
    }
  }
  return words.str();
}

oracle::MicrobatchResult next_of(std::istringstream& words, const std::vector<int>& layers) {
  const auto take = [&] {
    std::uint32_t bits = 0;
    words >> bits;
    return std::bit_cast<float>(bits);
  };
  oracle::MicrobatchResult microbatch;
  microbatch.loss = take();
  std::size_t pairs = 0;
  words >> pairs;
  for (std::size_t x = 0; x < pairs; ++x) {
    oracle::ExpertStatistics<float> statistics;
    statistics.layer = x < layers.size() ? layers[x] : -1;
    statistics.aux_loss = take();
    statistics.z_loss = take();
    microbatch.experts.push_back(statistics);
  }
  return microbatch;
}

std::vector<int> expert_layers(const Scenario& scenario) {
  std::vector<int> layers;
  for (std::size_t i = 0; i < scenario.model.pattern.size(); ++i) {
    if (scenario.model.pattern[i] == 'E') layers.push_back(static_cast<int>(i));
  }
  return layers;
}

// `values` are the elements from `first` on.
void place(std::vector<float>& whole, std::size_t size, std::int64_t first,
           const std::vector<float>& values) {
  whole.resize(size);
  std::copy(values.begin(), values.end(), whole.begin() + first);
}

}  // namespace

bool oracle_knows(const Scenario& scenario) {
  return scenario.fsdp.reduction != Reduction::nccl || scenario.parallel.data == 1 ||
         sums_have_no_order(scenario);
}

bool has_judge_of_steps(const Scenario& scenario, const std::string& device) {
  const bool one_fold =
      scenario.parallel.data == 1 || scenario.fsdp.strategy >= Sharding::optim_grads;
  return oracle_knows(scenario) && (one_fold || !is_judged_by_an_eager_run(scenario, device));
}

Scenario eager(const Scenario& scenario) {
  Scenario s = scenario;
  s.cuda_graph.impl = GraphImpl::none;
  s.cuda_graph.modules.clear();
  s.training.recapture_at.clear();
  s.training.resume_at.clear();
  s.offload = {};
  return s;
}

void copy_numbers(const StepResult& got, oracle::StepResult& to) {
  to.loss = got.loss;
  to.norm = got.norm;
  to.clip = got.clip;
  to.learning_rate = got.learning_rate;
}

oracle::Parameter without_values(const ParameterView& view) {
  oracle::Parameter one;
  one.name = view.name;
  one.layer = view.layer;
  one.rows = view.full_rows;
  one.cols = view.full_cols;
  one.is_vector = view.is_vector;
  return one;
}

EagerReference::EagerReference(const Scenario& scenario, ComparedRun::Rank& rank)
    : scenario_(scenario), rank_(rank) {}

oracle::StepResult EagerReference::as_the_oracles(const StepResult& got) {
  oracle::StepResult result;
  copy_numbers(got, result);
  const std::vector<int> layers = expert_layers(scenario_);
  std::vector<std::istringstream> ranks;
  const std::vector<std::string> said = rank_.engine.communicator.all_gather_object(words_of(got));
  // Every stage has the losses of its replicas.
  for (std::int64_t rank = 0; rank < scenario_.parallel.data; ++rank)
    ranks.emplace_back(at(said, rank));
  for (std::size_t m = 0; m < got.microbatch_losses.size(); ++m) {
    for (std::istringstream& words : ranks) result.microbatches.push_back(next_of(words, layers));
  }
  return result;
}

void EagerReference::step() {
  remembered_.steps.push_back(as_the_oracles(rank_.engine.trainer.step()));
  remembered_.evaluations.emplace_back();
}

void EagerReference::evaluate() {
  remembered_.evaluations.back() = as_the_oracles(rank_.engine.trainer.evaluate());
}

// Ranks in one process call it in turn. The elements of other processes stay +0, and nobody here
// compares them.
void EagerReference::remember(ReferenceResults& all) && {
  const Trainer& trainer = rank_.engine.trainer;
  all.steps = std::move(remembered_.steps);  // Equal on every rank.
  all.evaluations = std::move(remembered_.evaluations);
  for (const ParameterView& view : trainer.parameters()) {
    const std::size_t index = view.index;
    if (all.parameters.size() <= index) all.parameters.resize(index + 1);
    oracle::Parameter& whole = all.parameters[index];
    if (whole.name.empty()) whole = without_values(view);  // A rank may have several parts of it.
    const std::size_t size = view.full_rows * view.full_cols;
    place(whole.weight, size, view.first, trainer.read(StoredValues(view.weight)));
    place(whole.m, size, view.first, trainer.read(StoredValues(view.m)));
    place(whole.v, size, view.first, trainer.read(StoredValues(view.v)));
  }
  all.expert_biases.resize(scenario_.model.pattern.size());
  for (const ExpertBiasView& view : trainer.expert_biases()) {
    at(all.expert_biases, view.layer) = trainer.read(StoredValues(view.bias));
  }
  all.digest = trainer.weight_digest();
  all.scaling = trainer.scaling_digest();
}

std::string first_losses_differ(const Scenario& scenario, const DataSource& data,
                                const ReferenceResults& reference) {
  ExpectedSteps oracle(data, make_oracle_judge(scenario, ""));
  const oracle::StepResult& want = oracle.step(0).want;
  const oracle::StepResult& got = reference.steps.at(0);
  for (std::size_t m = 0; m < want.microbatches.size(); ++m) {
    const float w = want.microbatches[m].loss, g = got.microbatches.at(m).loss;
    if (std::bit_cast<std::uint32_t>(w) == std::bit_cast<std::uint32_t>(g)) continue;
    return "the loss of microbatch " + std::to_string(m) + " of the first step is " +
           value_text(g) + ", the oracle's " + value_text(w);
  }
  return "";
}

}  // namespace lockstep
