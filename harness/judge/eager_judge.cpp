#include "harness/judge/eager_judge.h"

#include <numeric>
#include <span>
#include <utility>

#include "engine/train/trainer.h"
#include "harness/case/nothing_planted.h"
#include "harness/case/schedules.h"
#include "harness/judge/eager_reference.h"
#include "kernels/core/at.h"
#include "scenarios/by_one_rank.h"

namespace lockstep {
namespace {

// Returns the same training in its plainest form.
Scenario plain(const Scenario& scenario) {
  Scenario s = eager(by_one_rank(scenario));
  s.model.recompute.clear();
  s.training.in_flight = 1;
  s.checker = {};
  return s;
}

using Experts = oracle::ExpertStatistics<float>;

class EagerJudge final : public Judge, private StepListener {
 public:
  EagerJudge(const Scenario& scenario, const DataSource& data, const std::string& device, int gpu)
      : scenario_(plain(scenario)),
        expert_biases_(scenario.model.pattern.size()),
        device_(open_backend(device, sim_options(scenario_, 1), gpu)),
        trainer_(device_, scenario_, data, {.dry_run_ledger = false, .listener = this}) {
    for (const ParameterView& view : trainer_.parameters())
      parameters_.push_back(without_values(view));
    pairs_so_far_ = trainer_.routed_pairs();
  }

  oracle::StepResult step(std::int64_t, const StepData& data) override {
    return passes(data, [&] { return trainer_.step(); });
  }
  oracle::StepResult evaluate(std::int64_t, const StepData& data) override {
    return passes(data, [&] { return trainer_.evaluate(); });
  }
  const std::vector<oracle::Parameter>& parameters() const override { return parameters_; }
  const std::vector<std::vector<float>>& expert_bias() const override { return expert_biases_; }
  std::string weight_digest() const override { return digest_; }
  std::string scaling_digest() const override { return scaling_; }

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
      keep_router_losses(got.microbatch_router_losses[m], result_.microbatches[m].experts);
    }
    keep(&oracle::Parameter::weight,
         [](const ParameterView& view) { return StoredValues(view.weight); });
    keep(&oracle::Parameter::m, [](const ParameterView& view) { return StoredValues(view.m); });
    keep(&oracle::Parameter::v, [](const ParameterView& view) { return StoredValues(view.v); });
    for (const ExpertBiasView& view : trainer_.expert_biases()) {
      at(expert_biases_, view.layer) = trainer_.read(StoredValues(view.bias));
    }
    digest_ = trainer_.weight_digest();
    scaling_ = trainer_.scaling_digest();
    return std::move(result_);
  }

  // Adds router losses to what a forward pass showed of each layer. In an evaluation `experts` is
  // empty before.
  void keep_router_losses(const std::vector<RouterLosses>& layers,
                          std::vector<Experts>& experts) const {
    for (std::size_t x = 0; x < layers.size(); ++x) {
      if (x == experts.size()) experts.emplace_back();
      experts[x].layer = pairs_so_far_[x].layer;
      experts[x].aux_loss = layers[x].balance;
      experts[x].z_loss = layers[x].z;
    }
  }
  // Returns for the microbatch that just ran how many pairs chose each expert, and how many of them
  // were dropped.
  std::vector<Experts> routed_since() {
    std::vector<RoutedPairs> so_far = trainer_.routed_pairs();
    std::vector<Experts> layers;
    for (std::size_t x = 0; x < so_far.size(); ++x) {
      const RoutedPairs &after = so_far[x], &before = pairs_so_far_[x];
      Experts one;
      one.layer = after.layer;
      for (std::size_t e = 0; e < after.chosen.size(); ++e) {
        one.chosen.push_back(after.chosen[e] - before.chosen[e]);
        one.dropped.push_back(one.chosen[e] - (after.kept[e] - before.kept[e]));
      }
      layers.push_back(std::move(one));
    }
    pairs_so_far_ = std::move(so_far);
    return layers;
  }
  // Returns the tensor cut to the rows that pairs fill.
  static StoredValues in_use(const NamedTensor& named, const std::vector<Experts>& layers) {
    StoredValues values = named.tensor;
    if (named.rows != NamedTensor::Rows::ragged_buffer) return values;
    values.rows = 0;
    for (const Experts& one : layers) {
      if (one.layer != named.layer) continue;
      values.rows += std::accumulate(one.chosen.begin(), one.chosen.end(), std::int64_t{0});
      values.rows -= std::accumulate(one.dropped.begin(), one.dropped.end(), std::int64_t{0});
    }
    return values;
  }

  std::vector<std::vector<float>> read_each(StoredValues (*member)(const ParameterView&)) const {
    std::vector<StoredValues> list;
    for (const ParameterView& view : trainer_.parameters()) list.push_back(member(view));
    return trainer_.read(list);
  }
  void keep(std::vector<float> oracle::Parameter::*to,
            StoredValues (*member)(const ParameterView&)) {
    std::vector<std::vector<float>> seen = read_each(member);
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].*to = std::move(seen[i]);
  }

  void forward_done(int microbatch, const std::vector<NamedTensor>& activations, bool) override {
    oracle::MicrobatchResult& result = at(result_.microbatches, microbatch);
    result.experts = routed_since();
    std::vector<StoredValues> list;
    for (const NamedTensor& one : activations) list.push_back(in_use(one, result.experts));
    std::vector<std::vector<float>> seen = trainer_.read(list);
    for (std::size_t i = 0; i < activations.size(); ++i) {
      const NamedTensor& one = activations[i];
      result.activations.push_back(
          {one.name, one.layer, list[i].rows, list[i].cols, std::move(seen[i])});
    }
  }
  void backward_done(int microbatch, const std::vector<NamedTensor>&, bool) override {
    at(result_.microbatches, microbatch).gradients = read_each([](const ParameterView& view) {
      return StoredValues(view.microbatch_gradient ? view.microbatch_gradient : view.gradient);
    });
  }
  void gradients_done() override {
    keep(&oracle::Parameter::gradient,
         [](const ParameterView& view) { return StoredValues(view.gradient); });
  }

  Scenario scenario_;
  std::vector<oracle::Parameter> parameters_;
  std::vector<std::vector<float>> expert_biases_;
  std::vector<RoutedPairs> pairs_so_far_;
  std::string digest_, scaling_;
  oracle::StepResult result_;
  Device device_;
  Trainer trainer_;
};

}  // namespace

bool is_judged_by_an_eager_run(const Scenario& scenario, const std::string& device) {
  return scenario.model.core_attention == CoreAttention::cudnn && device == "cuda";
}

std::unique_ptr<Judge> make_eager_judge(const Scenario& scenario, const DataSource& data,
                                        const std::string& device, int gpu) {
  const NothingPlanted sound;
  return std::make_unique<EagerJudge>(scenario, data, device, gpu);
}

}  // namespace lockstep
