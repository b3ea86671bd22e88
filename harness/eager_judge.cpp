#include "harness/eager_judge.h"

#include <span>
#include <utility>

#include "engine/trainer.h"
#include "harness/device_choice.h"
#include "harness/eager_reference.h"
#include "harness/schedules.h"
#include "kernels/fault.h"
#include "scenarios/by_one_rank.h"

namespace lockstep {
namespace {

// The same training, as plain as it can be run.
Scenario plain(const Scenario& scenario) {
  Scenario s = eager(by_one_rank(scenario));
  s.model.recompute.clear();
  s.training.in_flight = 1;
  s.checker = {};
  return s;
}

class NothingPlanted {
 public:
  NothingPlanted() : planted_(planted_fault()) { plant_fault(""); }
  ~NothingPlanted() { plant_fault(planted_); }
  NothingPlanted(const NothingPlanted&) = delete;
  NothingPlanted& operator=(const NothingPlanted&) = delete;

 private:
  std::string planted_;
};

class EagerJudge final : public Judge, private StepListener {
 public:
  EagerJudge(const Scenario& scenario, const DataSource& data, const std::string& device, int gpu)
      : scenario_(plain(scenario)),
        expert_bias_(scenario.model.pattern.size()),
        device_(open_backend(device, sim_options(scenario_, 1), gpu)),
        trainer_(device_, scenario_, data, {.dry_run_ledger = false, .listener = this}) {
    for (const ParameterView& view : trainer_.parameters()) parameters_.push_back(without_values(view));
  }

  oracle::StepResult step(std::int64_t, const StepData& data) override {
    return passes(data, [&] { return trainer_.step(); });
  }
  oracle::StepResult evaluate(std::int64_t, const StepData& data) override {
    return passes(data, [&] { return trainer_.evaluate(); });
  }
  const std::vector<oracle::Parameter>& parameters() const override { return parameters_; }
  const std::vector<std::vector<float>>& expert_bias() const override { return expert_bias_; }
  std::string weight_digest() const override { return digest_; }

 private:
  template <class Run>
  oracle::StepResult passes(const StepData& data, const Run& run) {
    const NothingPlanted sound;
    device_.backend().enter_thread();
    result_ = {};
    result_.microbatches.resize(data.microbatches.size());
    const StepResult got = run();
    copy_numbers(got, result_);
    for (std::size_t m = 0; m < got.microbatch_losses.size(); ++m) {
      result_.microbatches[m].loss = got.microbatch_losses[m];
    }
    keep(&oracle::Parameter::weight, [](const ParameterView& view) { return StoredValues(view.weight); });
    keep(&oracle::Parameter::m, [](const ParameterView& view) { return StoredValues(view.m); });
    keep(&oracle::Parameter::v, [](const ParameterView& view) { return StoredValues(view.v); });
    digest_ = trainer_.weight_digest();
    return std::move(result_);
  }

  std::vector<std::vector<float>> read_each(StoredValues (*member)(const ParameterView&)) const {
    std::vector<StoredValues> list;
    for (const ParameterView& view : trainer_.parameters()) list.push_back(member(view));
    return trainer_.read(list);
  }
  void keep(std::vector<float> oracle::Parameter::*to, StoredValues (*member)(const ParameterView&)) {
    std::vector<std::vector<float>> seen = read_each(member);
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].*to = std::move(seen[i]);
  }

  void forward_done(int microbatch, const std::vector<NamedTensor>& activations, bool) override {
    std::vector<StoredValues> list;
    for (const NamedTensor& one : activations) list.push_back(one.tensor);
    std::vector<std::vector<float>> seen = trainer_.read(list);
    std::vector<oracle::Tensor>& kept = result_.microbatches[static_cast<std::size_t>(microbatch)].activations;
    for (std::size_t i = 0; i < activations.size(); ++i) {
      const NamedTensor& one = activations[i];
      kept.push_back({one.name, one.layer, one.tensor.rows, one.tensor.cols, std::move(seen[i])});
    }
  }
  void backward_done(int microbatch, bool) override {
    result_.microbatches[static_cast<std::size_t>(microbatch)].gradients = read_each([](const ParameterView& view) {
      return StoredValues(view.microbatch_gradient ? view.microbatch_gradient : view.gradient);
    });
  }
  void gradients_done() override {
    keep(&oracle::Parameter::gradient, [](const ParameterView& view) { return StoredValues(view.gradient); });
  }

  Scenario scenario_;
  std::vector<oracle::Parameter> parameters_;
  std::vector<std::vector<float>> expert_bias_;
  std::string digest_;
  oracle::StepResult result_;
  Device device_;
  Trainer trainer_;
};

}  // namespace

bool is_judged_by_an_eager_run(const Scenario& scenario, const std::string& device) {
  return scenario.model.core_attention == CoreAttention::cudnn && device == "cuda";
}

std::unique_ptr<Judge> make_eager_judge(const Scenario& scenario, const DataSource& data, const std::string& device,
                                        int gpu) {
  const NothingPlanted sound;
  return std::make_unique<EagerJudge>(scenario, data, device, gpu);
}

}  // namespace lockstep
