// Runs a scenario on its ranks and puts together what they hold.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/comm/ranks.h"
#include "scenarios/pass_order.h"
#include "tests/engine/train/training_run.h"

namespace lockstep::test {

using Values = std::vector<std::vector<float>>;

// Adds what a view holds to the parameter that it is part of.
inline void put(Values& whole, const ParameterView& view, const std::vector<float>& part) {
  const auto index = static_cast<std::size_t>(view.index);
  if (whole.size() <= index) whole.resize(index + 1);
  whole[index].resize(static_cast<std::size_t>(view.full_rows * view.full_cols));
  std::copy(part.begin(), part.end(), whole[index].begin() + view.first);
}

// Gradients of every step, and the state at the end, whole.
class WholeRecorder : public StepListener {
 public:
  explicit WholeRecorder(Outcome& outcome) : outcome_(outcome) {}
  void watch(Trainer& trainer) { trainer_ = &trainer; }
  void gradients_done() override {
    const auto step = static_cast<std::size_t>(trainer_->steps_done());
    if (outcome_.gradients.size() <= step) outcome_.gradients.resize(step + 1);
    for (const ParameterView& p : trainer_->parameters())
      put(outcome_.gradients[step], p, trainer_->read(p.gradient));
  }

 private:
  Outcome& outcome_;
  Trainer* trainer_ = nullptr;
};

// Biases of layers, each on the ranks of one stage.
inline void put_biases(Trainer& trainer, std::vector<std::vector<float>>& of_layers) {
  for (const ExpertBiasView& view : trainer.expert_biases()) {
    const auto layer = static_cast<std::size_t>(view.layer);
    if (of_layers.size() <= layer) of_layers.resize(layer + 1);
    const std::vector<float> values = trainer.read(view.bias);
    EXPECT_TRUE(of_layers[layer].empty() || of_layers[layer] == values);
    of_layers[layer] = values;
  }
}

inline void note_whole_end(Trainer& trainer, Outcome& whole, Outcome& outcome) {
  for (const ParameterView& p : trainer.parameters()) {
    put(whole.weights, p, trainer.read(p.weight));
    put(whole.m, p, trainer.read(p.m));
    put(whole.v, p, trainer.read(p.v));
  }
  put_biases(trainer, whole.expert_biases);
  outcome.counters = trainer.counters();
  outcome.digest = trainer.weight_digest() + trainer.scaling_digest();
}

// The outcome of all ranks as if there were one: losses by microbatch number, tensors whole.
inline Outcome merged(const std::vector<Outcome>& ranks) {
  Outcome all;
  const std::size_t size = ranks.size();
  const auto interleave = [&](auto of_rank) {
    std::vector<float> losses(size * of_rank(ranks[0]).size());
    for (std::size_t i = 0; i < losses.size(); ++i) losses[i] = of_rank(ranks[i % size])[i / size];
    return losses;
  };
  all.steps = ranks[0].steps;
  for (std::size_t s = 0; s < all.steps.size(); ++s) {
    all.steps[s].microbatch_losses =
        interleave([s](const Outcome& r) { return r.steps[s].microbatch_losses; });
  }
  for (std::size_t e = 0; e < ranks[0].evaluations.size(); ++e) {
    all.evaluations.push_back(interleave([e](const Outcome& r) { return r.evaluations[e]; }));
  }
  all.counters = ranks[0].counters;
  all.digest = ranks[0].digest;
  return all;
}

// Runs one step and `done` microbatches of each rank of the second, and saves.
inline void save_within_second_step(const Scenario& scenario, const DataSource& data, int done,
                                    const std::string& path) {
  Device device(open_device_under_test({}));
  run_ranks(device, static_cast<int>(ranks_of_run(scenario)), 1, [&](Communicator& communicator) {
    Trainer trainer(device, scenario, data, {.communicator = &communicator});
    trainer.step();
    trainer.accumulate(done);
    trainer.save(path);
  });
}

// On the virtual ranks of all stages, from the checkpoint `from` if it is given. What they must
// agree on is checked here. Counters are those of the first rank.
inline Outcome run_whole(const Scenario& scenario, const DataSource& data,
                         const SimOptions& sim = {}, Observer* observer = nullptr,
                         const std::string& from = "") {
  const auto size = static_cast<int>(ranks_of_run(scenario));
  std::vector<Outcome> ranks(static_cast<std::size_t>(size));
  Outcome whole;  // Every rank puts its part of gradients, weights and moments.
  {
    const auto interceptor = make_interceptor();
    Device device(open_device_under_test(sim), observer, {}, interceptor.get());
    run_ranks(device, size, static_cast<std::uint64_t>(scenario.training.seed),
              [&](Communicator& communicator) {
                Outcome& mine = ranks[static_cast<std::size_t>(communicator.rank())];
                WholeRecorder recorder(whole);
                Trainer trainer(device, scenario, data,
                                {.listener = &recorder, .communicator = &communicator});
                recorder.watch(trainer);
                if (!from.empty()) trainer.load(from);
                run_until(trainer, scenario.training.steps, mine);
                note_whole_end(trainer, whole, mine);
              });
  }
  // Every stage knows all losses.
  const std::vector<Outcome> first_stage(ranks.begin(), ranks.begin() + scenario.parallel.data);
  Outcome all = merged(first_stage);
  all.gradients = std::move(whole.gradients);
  all.weights = std::move(whole.weights);
  all.m = std::move(whole.m);
  all.v = std::move(whole.v);
  std::erase_if(whole.expert_biases, [](const auto& bias) { return bias.empty(); });
  all.expert_biases = std::move(whole.expert_biases);
  for (const Outcome& rank : ranks) {
    EXPECT_EQ(rank.digest, all.digest);
    for (std::size_t s = 0; s < all.steps.size(); ++s) {
      EXPECT_EQ(rank.steps[s].loss, all.steps[s].loss);
      EXPECT_EQ(rank.steps[s].norm, all.steps[s].norm);
    }
  }
  for (const Outcome& rank : first_stage) {
    for (const Counter counter : {Counter::collectives, Counter::graph_replays,
                                  Counter::graphs_captured, Counter::eager_fallbacks}) {
      EXPECT_EQ(rank.counters.at(counter), all.counters.at(counter)) << to_text(counter);
    }
  }
  return all;
}

}  // namespace lockstep::test
