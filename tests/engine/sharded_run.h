// Runs a scenario on its ranks and puts together what they hold.
#pragma once

#include <algorithm>

#include "engine/communicator.h"
#include "tests/engine/training_run.h"

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
    for (const ParameterView& p : trainer_->parameters()) put(outcome_.gradients[step], p, trainer_->read(p.gradient));
  }

 private:
  Outcome& outcome_;
  Trainer* trainer_ = nullptr;
};

inline void note_whole_end(Trainer& trainer, Outcome& outcome) {
  for (const ParameterView& p : trainer.parameters()) {
    put(outcome.weights, p, trainer.read(p.weight));
    put(outcome.m, p, trainer.read(p.m));
    put(outcome.v, p, trainer.read(p.v));
  }
  outcome.expert_biases.clear();
  for (const ExpertBiasView& view : trainer.expert_biases()) outcome.expert_biases.push_back(trainer.read(view.bias));
  outcome.counters = trainer.counters();
  outcome.digest = trainer.weight_digest();
}

// One rank.
inline Outcome run_whole(const Scenario& scenario, const DataSource& data, const SimOptions& sim = {},
                         Observer* observer = nullptr) {
  Outcome outcome;
  WholeRecorder recorder(outcome);
  Device device(open_device_under_test(sim), observer);
  Trainer trainer(device, scenario, data, {.listener = &recorder});
  recorder.watch(trainer);
  run_until(trainer, scenario.training.steps, outcome);
  note_whole_end(trainer, outcome);
  return outcome;
}

}  // namespace lockstep::test
