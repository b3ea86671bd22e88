// Promises of the step loop: graphs, slots, fallbacks, failures and checkpoints.
#include "engine/train/trainer.h"

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string_view>

#include "kernels/core/fault.h"
#include "kernels/ops/residual.h"
#include "tests/engine/train/training_run.h"

namespace lockstep::test {
namespace {

Outcome run_default(const std::function<void(Scenario&)>& change) {
  Scenario s;
  s.name = "test";
  change(s);
  const auto data = open_data(s);
  return run(s, *data);
}

TEST(Trainer, RunsTheDefaultScenarioWithSixteenLaunches) {
  const Outcome r = run_default([](Scenario&) {});
  EXPECT_EQ(r.counters.at(Counter::graphs_captured),
            8);  // 2 regions, 2 slots, forward and backward.
  EXPECT_EQ(r.counters.at(Counter::graph_replays), 16);
  EXPECT_EQ(r.counters.at(Counter::eager_fallbacks), 0);
  EXPECT_EQ(r.counters.at(Counter::max_outstanding), 2);
  for (const StepResult& step : r.steps) EXPECT_GT(step.loss, 0);
}

TEST(Trainer, FallsBackForAMicrobatchWithTooManyDocuments) {
  const Outcome r = run_default([](Scenario& s) {
    s.data.documents = {{{20, 0, 30}, {1, 2, 3, 4}}, {{64}, {16, 15, 17}}};
    s.training.steps = 4;
    s.cuda_graph.max_packed_seqs = {3};
  });
  EXPECT_EQ(r.counters.at(Counter::eager_fallbacks), 1);
  EXPECT_EQ(r.counters.at(Counter::graph_replays), 20);
}

struct CountsResiduals : Observer {
  void on_call(const IssuedCall& issued) override {
    const auto* submitted = issued.as<SubmitCall>();
    if (!submitted) return;
    const std::string_view name = submitted->op.type().name;
    forward += name == ResidualForward<float>::kName ? 1 : 0;
    backward += name == ResidualBackward<float>::kName ? 1 : 0;
  }
  int forward = 0;
  int backward = 0;
};
// Without dropout the gradient of a mixer's output is that of the residual, and no op copies it.
TEST(Trainer, DiffersTheResidualOnlyWithDropout) {
  for (const int millionths : {0, 250000}) {
    Scenario s;
    s.name = "test";
    s.model.dropout = {millionths};
    s.cuda_graph.impl = GraphImpl::none;
    s.cuda_graph.modules.clear();
    const auto data = open_data(s);
    CountsResiduals counts;
    Device device(open_device_under_test(), &counts);
    Trainer(device, s, *data).step();
    EXPECT_GT(counts.forward, 0);
    EXPECT_EQ(counts.backward, millionths > 0 ? counts.forward : 0);
  }
}

// Has documents for two steps and no more.
class ShortData : public DataSource {
 public:
  explicit ShortData(const DataSource& whole) : whole_(whole) {}
  StepData training(std::int64_t step) const override {
    if (step >= 2) throw std::runtime_error("no documents left");
    return whole_.training(step);
  }
  StepData evaluation(std::int64_t step) const override { return whole_.evaluation(step); }
  double unigram_entropy() const override { return 0; }

 private:
  const DataSource& whole_;
};

// The documents of the next step are drawn during a step: where there are none, only the next step
// fails.
TEST(Trainer, FinishesTheLastStepThatHasDocuments) {
  Scenario s;
  s.name = "test";
  const auto whole = open_data(s);
  const ShortData data(*whole);
  Device device(open_device_under_test());
  Trainer trainer(device, s, data);
  EXPECT_GT(trainer.step().loss, 0);
  EXPECT_GT(trainer.step().loss, 0);
  EXPECT_EQ(trainer.steps_done(), 2);
  EXPECT_THROW(trainer.step(), std::runtime_error);
  EXPECT_EQ(trainer.steps_done(), 2);
}

TEST(Trainer, TearsDownAndCapturesAgain) {
  const Outcome r = run_default([](Scenario& s) {
    s.training.steps = 5;
    s.training.recapture_at = {2, 4};
  });
  EXPECT_EQ(r.counters.at(Counter::recaptures), 2);
  EXPECT_EQ(r.counters.at(Counter::graphs_captured), 24);
}

TEST(Trainer, RunsAFullIterationAsOneLaunchAStep) {
  const Outcome r = run_default([](Scenario& s) {
    s.cuda_graph.impl = GraphImpl::full_iteration;
    s.training.steps = 4;
    s.training.eval_every = 2;
  });
  EXPECT_EQ(r.counters.at(Counter::graph_replays),
            3 + 2);  // Steps 1, 2, 3 and the evaluations after steps 1 and 3.
  EXPECT_EQ(r.counters.at(Counter::evaluations), 2);
}

// A capture that fails names the call, leaves no graph behind, and the run goes on eagerly with the
// same bits.
TEST(Trainer, SurvivesACaptureThatFails) {
  Scenario s;
  s.name = "test";
  const auto data = open_data(s);
  Scenario eager = s;
  eager.cuda_graph.impl = GraphImpl::none;
  const Outcome want = run(eager, *data);

  Device device(open_device_under_test());
  Trainer trainer(device, s, *data);
  trainer.step();
  plant_fault("allocation-during-capture");
  try {
    trainer.step();
    ADD_FAILURE() << "the capture should have failed";
  } catch (const EngineViolation& violation) {
    EXPECT_EQ(violation.judge(), JudgeKind::capture);
    EXPECT_NE(std::string(violation.what()).find("cudaErrorStreamCapture"), std::string::npos)
        << violation.what();
  }
  plant_fault("");
  EXPECT_EQ(trainer.steps_done(), 1);
  while (trainer.steps_done() < s.training.steps) trainer.step();
  for (std::size_t i = 0; i < trainer.parameters().size(); ++i) {
    EXPECT_TRUE(same_bits(trainer.read(trainer.parameters()[i].weight), want.weights[i]));
  }
}

TEST(Trainer, ContinuesFromACheckpointAsIfNeverStopped) {
  Scenario s;
  s.name = "test";
  s.model.dropout = {100'000};
  s.training.steps = 6;
  s.training.optimizer.schedule = LrSchedule::cosine;
  s.training.optimizer.decay_steps = 6;
  const auto data = open_data(s);
  const Outcome want = run(s, *data);
  const TemporaryFolder folder;
  const std::string path = folder / "state";
  for (int stop = 1; stop < 6; ++stop) {
    {
      Device device(open_device_under_test());
      Trainer first(device, s, *data);
      while (first.steps_done() < stop) first.step();
      first.save(path);
    }
    Device device(open_device_under_test());
    Trainer second(device, s, *data);
    second.load(path);
    EXPECT_EQ(second.steps_done(), stop);
    while (second.steps_done() < s.training.steps) second.step();
    EXPECT_EQ(second.weight_digest(), want.digest) << "stopped after " << stop;
  }
  Scenario other = s;
  other.model.hidden = 48;
  Device device(open_device_under_test());
  Trainer wrong(device, other, *data);
  EXPECT_THROW(wrong.load(path), std::runtime_error);
}

}  // namespace
}  // namespace lockstep::test
