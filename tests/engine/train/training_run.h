// Runs a scenario on the device under test and keeps everything that a property may compare.
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/trainer.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::test {

// LOCKSTEP_TEST_DEVICE: sim (default) or cuda.
inline std::string device_under_test() {
  const char* name = std::getenv("LOCKSTEP_TEST_DEVICE");
  return name == nullptr ? "sim" : name;
}
inline std::unique_ptr<Backend> open_device_under_test(const SimOptions& sim = {}) {
  return device_under_test() == "cuda" ? open_cuda() : open_sim(sim);
}

// Documents as given, the same in every step unless there are several steps.
class FixedData : public DataSource {
 public:
  explicit FixedData(std::vector<StepData> steps) : steps_(std::move(steps)) {}
  StepData training(std::int64_t step) const override {
    return steps_[static_cast<std::size_t>(step) % steps_.size()];
  }
  StepData evaluation(std::int64_t step) const override { return training(step); }
  double unigram_entropy() const override { return 0; }

 private:
  std::vector<StepData> steps_;
};

inline Document document(std::int32_t number, std::vector<std::int32_t> tokens) {
  Document d{number, tokens, {}};
  for (std::size_t i = 0; i < tokens.size(); ++i)
    d.targets.push_back(i + 1 < tokens.size() ? tokens[i + 1] : -1);
  return d;
}
// `targets`: the normaliser; 0 counts them.
inline StepData step_of(std::vector<Microbatch> microbatches, std::int64_t targets = 0) {
  StepData data{std::move(microbatches), targets};
  if (targets > 0) return data;
  for (const Microbatch& m : data.microbatches) {
    for (const Document& d : m.documents) {
      for (const std::int32_t target : d.targets) data.targets += target >= 0;
    }
  }
  return data;
}

// Everything a run leaves behind, as bits.
struct Outcome {
  std::vector<StepResult> steps;
  std::vector<std::vector<float>> evaluations;
  std::vector<std::vector<std::vector<float>>> gradients;  // [step][parameter]
  std::vector<std::vector<float>> weights, m, v;           // After the last step.
  std::vector<std::vector<float>> expert_biases;  // For each layer `E`, after the last step.
  std::vector<std::vector<float>> token_losses;   // [forward pass][row], in order.
  Counters counters;
  std::string digest;
};

// Notes token losses and gradients as they come.
class Recorder : public StepListener {
 public:
  explicit Recorder(Outcome& outcome) : outcome_(outcome) {}
  void watch(Trainer& trainer) { trainer_ = &trainer; }
  void forward_done(int, const std::vector<NamedTensor>& names, bool live) override {
    if (live) outcome_.token_losses.push_back(trainer_->read(names.back().tensor));
  }
  void gradients_done() override {
    outcome_.gradients.emplace_back();
    for (const ParameterView& p : trainer_->parameters()) {
      outcome_.gradients.back().push_back(trainer_->read(p.gradient));
    }
  }

 private:
  Outcome& outcome_;
  Trainer* trainer_ = nullptr;
};

inline void run_until(Trainer& trainer, std::int64_t steps, Outcome& outcome) {
  while (trainer.steps_done() < steps) {
    outcome.steps.push_back(trainer.step());
    if (trainer.evaluation_is_due())
      outcome.evaluations.push_back(trainer.evaluate().microbatch_losses);
  }
}

inline void note_end(Trainer& trainer, Outcome& outcome) {
  for (const ParameterView& p : trainer.parameters()) {
    outcome.weights.push_back(trainer.read(p.weight));
    outcome.m.push_back(trainer.read(p.m));
    outcome.v.push_back(trainer.read(p.v));
  }
  for (const ExpertBiasView& view : trainer.expert_biases())
    outcome.expert_biases.push_back(trainer.read(view.bias));
  outcome.counters = trainer.counters();
  outcome.digest = trainer.weight_digest() + trainer.scaling_digest();
}

// Stands at the device of every run here and in sharded_run.h: a test of planted faults sets it,
// null otherwise.
inline std::function<std::unique_ptr<CallInterceptor>()> make_interceptor = [] { return nullptr; };

// `ballast`: bytes that are allocated before anything else, so that everything lies elsewhere.
inline Outcome run(const Scenario& scenario, const DataSource& data, const SimOptions& sim = {},
                   Observer* observer = nullptr, std::size_t ballast = 0) {
  Outcome outcome;
  Recorder recorder(outcome);
  const auto interceptor = make_interceptor();
  Device device(open_device_under_test(sim), observer, {}, interceptor.get());
  std::optional<DeviceBuffer> below;
  if (ballast > 0) below.emplace(device, ballast);
  Trainer trainer(device, scenario, data, {.listener = &recorder});
  recorder.watch(trainer);
  run_until(trainer, scenario.training.steps, outcome);
  note_end(trainer, outcome);
  return outcome;
}

// The same, saved after `stop` steps and continued from the file on another device by another
// trainer.
inline Outcome run_resumed(const Scenario& scenario, const DataSource& data, std::int64_t stop) {
  const TemporaryFolder folder;
  const std::string path = folder / "state";
  Outcome outcome;
  for (const std::int64_t until : {stop, scenario.training.steps}) {
    Recorder recorder(outcome);
    const auto interceptor = make_interceptor();
    Device device(open_device_under_test(), nullptr, {}, interceptor.get());
    Trainer trainer(device, scenario, data, {.listener = &recorder});
    recorder.watch(trainer);
    if (until != stop) trainer.load(path);
    run_until(trainer, until, outcome);
    if (until == stop) {
      trainer.save(path);
    } else {
      note_end(trainer, outcome);
    }
  }
  return outcome;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  for (const float x : a) {
    if (!(x == x)) return false;  // A NaN is itself a violation.
  }
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}
inline bool same_bits(const std::vector<std::vector<float>>& a,
                      const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) return false;
  }
  return true;
}

// The first thing in which two runs differ, or "".
inline std::string difference(const Outcome& a, const Outcome& b) {
  if (a.steps.size() != b.steps.size()) return "number of steps";
  for (std::size_t s = 0; s < a.steps.size(); ++s) {
    const std::string at = " of step " + std::to_string(s);
    if (!same_bits(a.steps[s].microbatch_losses, b.steps[s].microbatch_losses))
      return "microbatch losses" + at;
    if (!same_bits(a.gradients[s], b.gradients[s])) return "gradients" + at;
    if (!same_bits({a.steps[s].loss, a.steps[s].norm, a.steps[s].clip},
                   {b.steps[s].loss, b.steps[s].norm, b.steps[s].clip})) {
      return "loss, norm or clip" + at;
    }
    const RouterLosses &x = a.steps[s].router_losses, &y = b.steps[s].router_losses;
    if (!same_bits({x.balance, x.z}, {y.balance, y.z})) return "router losses" + at;
  }
  if (!same_bits(a.evaluations, b.evaluations)) return "evaluations";
  if (!same_bits(a.weights, b.weights)) return "weights";
  if (!same_bits(a.m, b.m) || !same_bits(a.v, b.v)) return "optimizer state";
  if (!same_bits(a.expert_biases, b.expert_biases)) return "expert biases";
  return a.digest == b.digest ? "" : "digest";
}

}  // namespace lockstep::test
