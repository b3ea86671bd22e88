// Runs a scenario on the device under test and keeps everything that a property may compare.
#pragma once

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "engine/trainer.h"

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
  StepData training(std::int64_t step) const override { return steps_[static_cast<std::size_t>(step) % steps_.size()]; }
  StepData evaluation(std::int64_t step) const override { return training(step); }
  double unigram_entropy() const override { return 0; }

 private:
  std::vector<StepData> steps_;
};

inline Document document(std::int32_t number, std::vector<std::int32_t> tokens) {
  Document d{number, tokens, {}};
  for (std::size_t i = 0; i < tokens.size(); ++i) d.targets.push_back(i + 1 < tokens.size() ? tokens[i + 1] : -1);
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
  std::vector<std::vector<float>> token_losses;            // [forward pass][row], in order.
  std::map<std::string, std::int64_t> counters;
  std::string digest;
};

inline Outcome run(const Scenario& scenario, const DataSource& data, const SimOptions& sim = {},
                   Observer* observer = nullptr) {
  Device device(open_device_under_test(sim), observer);
  struct Listener : StepListener {
    Trainer* trainer = nullptr;
    Outcome* result = nullptr;
    void forward_done(int, const std::vector<NamedTensor>& names, bool live) override {
      if (live) result->token_losses.push_back(trainer->read(names.back().tensor));
    }
    void gradients_done() override {
      result->gradients.emplace_back();
      for (const ParameterView& p : trainer->parameters()) {
        result->gradients.back().push_back(trainer->read(p.gradient));
      }
    }
  } listener;
  Trainer trainer(device, scenario, data, {.listener = &listener});
  Outcome result;
  listener.trainer = &trainer;
  listener.result = &result;
  while (trainer.steps_done() < scenario.training.steps) {
    result.steps.push_back(trainer.step());
    if (trainer.evaluation_is_due()) result.evaluations.push_back(trainer.evaluate().microbatch_losses);
  }
  for (const ParameterView& p : trainer.parameters()) {
    result.weights.push_back(trainer.read(p.weight));
    result.m.push_back(trainer.read(p.m));
    result.v.push_back(trainer.read(p.v));
  }
  result.counters = trainer.counters();
  result.digest = trainer.weight_digest();
  return result;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  for (const float x : a) {
    if (!(x == x)) return false;  // A NaN is itself a violation.
  }
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}
inline bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
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
    if (!same_bits(a.steps[s].microbatch_losses, b.steps[s].microbatch_losses)) return "microbatch losses" + at;
    if (!same_bits(a.gradients[s], b.gradients[s])) return "gradients" + at;
    if (!same_bits({a.steps[s].loss, a.steps[s].norm, a.steps[s].clip},
                   {b.steps[s].loss, b.steps[s].norm, b.steps[s].clip})) {
      return "loss, norm or clip" + at;
    }
  }
  if (!same_bits(a.evaluations, b.evaluations)) return "evaluations";
  if (!same_bits(a.weights, b.weights)) return "weights";
  if (!same_bits(a.m, b.m) || !same_bits(a.v, b.v)) return "optimizer state";
  return a.digest == b.digest ? "" : "digest";
}

}  // namespace lockstep::test
