// Checkpoints of sharded runs: continued bit for bit, on as many ranks or others; torn ones are
// refused, and until a new one is whole the one before is valid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "engine/checkpoint/checkpoint.h"
#include "kernels/core/fault.h"
#include "oracle/oracle.h"
#include "tests/engine/fsdp/sharded_run.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

class FsdpCheckpoint : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "state"; }

  // Six microbatches a step, on `ranks`.
  static Scenario scenario(int ranks, Sharding strategy = Sharding::optim_grads_params) {
    Scenario s;
    s.name = "test";
    s.numerics = {Numerics::bf16};
    s.model.pattern = "M*E";
    s.model.vocab = 7;
    s.model.dropout = {100'000};
    s.model.moe.router = Router::sigmoid;
    s.model.moe.expert_bias = true;
    s.fsdp.strategy = strategy;
    s.fsdp.bucket_bytes = 300;
    s.parallel.data = ranks;
    s.training.microbatches = 6 / ranks;
    s.training.in_flight = 1;
    s.training.steps = 4;
    return s;
  }

  // From `from` (or the start) until `steps` and as many microbatches of the next one, then saved.
  // The digest and the selection biases.
  std::string run(const Scenario& s, const std::string& from, std::int64_t steps,
                  const std::string& to, std::int64_t microbatches = 0) const {
    const auto data = open_data(s);
    std::string digest;
    Device device(open_device_under_test());
    run_ranks(device, static_cast<int>(s.parallel.data), 1, [&](Communicator& communicator) {
      Trainer trainer(device, s, *data, {.communicator = &communicator});
      if (!from.empty()) trainer.load(from);
      while (trainer.steps_done() < steps) {
        const StepResult result = trainer.step();
        if (communicator.rank() == 0) last_ = result;
      }
      if (microbatches > 0) trainer.accumulate(microbatches);
      if (!to.empty()) trainer.save(to);
      digest = trainer.weight_digest();
      for (const ExpertBiasView& view : trainer.expert_biases()) {
        for (const float bias : trainer.read(view.bias)) digest += " " + std::to_string(bias);
      }
    });
    return digest;
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }
  std::vector<fs::path> rank_files() const {
    std::vector<fs::path> list;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      if (entry.path().string().find(".rank-") != std::string::npos) list.push_back(entry.path());
    }
    return list;
  }
  const TemporaryFolder folder_;
  mutable StepResult last_;  // For the last step, as rank 0 has it.
};

TEST_F(FsdpCheckpoint, ContinuesAsIfNeverInterrupted) {
  for (const Sharding strategy :
       {Sharding::no_shard, Sharding::optim, Sharding::optim_grads, Sharding::optim_grads_params}) {
    const Scenario s = scenario(3, strategy);
    const std::string want = run(s, "", 4, "");
    for (const int stop : {1, 3}) {
      run(s, "", stop, path());
      EXPECT_EQ(run(s, path(), 4, ""), want)
          << static_cast<int>(strategy) << " stopped after " << stop;
    }
  }
}

// The step that is interrupted, the next one and the last.
TEST_F(FsdpCheckpoint, ContinuesWithinAStep) {
  for (const Sharding strategy :
       {Sharding::no_shard, Sharding::optim, Sharding::optim_grads, Sharding::optim_grads_params}) {
    for (const int ranks : {1, 2}) {
      for (const GraphImpl impl :
           {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
        if (impl == GraphImpl::full_iteration && ranks > 1) continue;
        Scenario s = scenario(ranks, strategy);
        s.model.moe.aux_loss = {10'000};
        s.training.in_flight = 2;
        s.cuda_graph.impl = impl;
        const std::string want = run(s, "", 3, "");
        const StepResult result = last_;
        for (const int stop : {0, 2}) {
          run(s, "", stop, path(), 1);
          run(s, path(), stop, path(), 6 / ranks - 1);  // In it once more.
          const std::string digest = run(s, path(), 3, "");
          EXPECT_EQ(digest, want) << static_cast<int>(strategy) << " on " << ranks
                                  << " ranks, graphs " << static_cast<int>(impl) << ", in step "
                                  << stop;
          if (stop < 2) continue;
          EXPECT_EQ(last_.loss, result.loss);
          EXPECT_EQ(last_.norm, result.norm);
          EXPECT_EQ(last_.microbatch_losses, result.microbatch_losses);
          EXPECT_EQ(last_.router_losses.balance, result.router_losses.balance);
          EXPECT_GT(last_.router_losses.balance, 0);
        }
      }
    }
  }
}

// Under one fold it does not matter who has done the microbatches before.
TEST_F(FsdpCheckpoint, ContinuesWithinAStepOnOtherRanks) {
  const std::string want = run(scenario(1), "", 3, "");
  run(scenario(3), "", 1, path(), 1);      // Microbatches 0 to 2,
  run(scenario(1), path(), 1, path(), 4);  // 3,
  run(scenario(2, Sharding::optim_grads), path(), 1,
      path());  // which is half of what 2 ranks have done,
  EXPECT_EQ(run(scenario(2), path(), 3, ""), want);
  EXPECT_EQ(run(scenario(1, Sharding::no_shard), path(), 3, ""), want);
}

TEST_F(FsdpCheckpoint, RefusesWithinAStepWhatOtherRanksCannotContinue) {
  const auto words = [&](const Scenario& s) {
    try {
      run(s, path(), 3, "");
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  run(scenario(1), "", 1, path(), 3);
  EXPECT_THAT(words(scenario(2)),
              testing::HasSubstr("after 3 microbatches of 1 ranks: 2 ranks cannot"));
  EXPECT_THAT(words(scenario(3, Sharding::optim)),
              testing::HasSubstr("only as many ranks can go on"));
  run(scenario(3, Sharding::optim), "", 1, path(), 1);
  EXPECT_THAT(words(scenario(1)), testing::HasSubstr("only as many ranks can go on"));
  EXPECT_EQ(words(scenario(3, Sharding::no_shard)), "");
}

// Whole files that no run writes.
TEST_F(FsdpCheckpoint, RefusesAPlaceThatNoStepHas) {
  run(scenario(1), "", 1, path(), 3);
  const Checkpoint good = read_checkpoint(path());
  for (const auto& [key, value] :
       std::multimap<std::string, std::string>{{"microbatches_done", "6"},
                                               {"microbatches_done", "x"},
                                               {"microbatches_done", "0"},
                                               {"microbatch_ranks", "4"},
                                               {"gradient_folds", ""}}) {
    Checkpoint bad = good;
    bad.metadata[key] = value;
    write_checkpoint(path(), bad);
    EXPECT_THROW(run(scenario(1), path(), 2, ""), std::runtime_error) << key << " " << value;
  }
  write_checkpoint(path(), good);
  EXPECT_EQ(run(scenario(1), path(), 2, ""), run(scenario(1), "", 2, ""));
}

// As many microbatches a step in all, or it is another run.
TEST_F(FsdpCheckpoint, RefusesOtherMicrobatches) {
  const Scenario s = scenario(1, Sharding::no_shard);
  run(s, "", 1, path());
  Scenario other = s;
  other.training.microbatches = 5;
  EXPECT_THROW(run(other, path(), 2, ""), std::runtime_error);
  other = s;
  other.training.change_microbatches_at = {{1, 3}};
  EXPECT_THROW(run(other, path(), 2, ""), std::runtime_error);
}

TEST_F(FsdpCheckpoint, ShowsWhatItForgetsWithinAStep) {
  Scenario s = scenario(1);
  s.data.documents = {
      {{17, 30}, {5, 16, 33}, {64}, {3, 4, 20}, {40}, {}}};  // Nothing is left to count.
  const std::string want = run(s, "", 3, "");
  run(s, "", 1, path(), 5);
  for (const char* name :
       {"checkpoint-forgets-the-gradients-so-far", "checkpoint-forgets-the-counts-so-far"}) {
    plant_fault(name);
    EXPECT_NE(run(s, path(), 3, ""), want) << name;
    plant_fault("");
  }
  EXPECT_EQ(run(s, path(), 3, ""), want);
}

TEST_F(FsdpCheckpoint, ContinuesOnAnyNumberOfRanks) {
  const std::string want = run(scenario(1), "", 4, "");
  std::string from;
  std::int64_t done = 0;
  for (const int ranks : {3, 2, 1, 6}) {
    const std::string to = path() + "-" + std::to_string(ranks);
    const std::string digest = run(scenario(ranks), from, ++done, to);
    EXPECT_EQ(digest == want, done == 4);
    from = to;
  }
  EXPECT_EQ(run(scenario(2), from, 4, ""), want) << "nothing left to do";
}

// Weights, moments and selection biases, whole.
struct WholeState {
  Values weights, m, v;
  std::vector<std::vector<float>> biases;  // For each symbol of the pattern.
  friend bool operator==(const WholeState&, const WholeState&) = default;
};

void add_state(const Trainer& trainer, WholeState& state) {
  for (const ParameterView& p : trainer.parameters()) {
    put(state.weights, p, trainer.read(p.weight));
    put(state.m, p, trainer.read(p.m));
    put(state.v, p, trainer.read(p.v));
  }
  for (const ExpertBiasView& view : trainer.expert_biases()) {
    const auto layer = static_cast<std::size_t>(view.layer);
    if (state.biases.size() <= layer) state.biases.resize(layer + 1);
    state.biases[layer] = trainer.read(view.bias);
  }
}

std::unique_ptr<oracle::Oracle> oracle_from(const Scenario& s, const WholeState& state,
                                            std::int64_t steps) {
  auto oracle = std::make_unique<oracle::Oracle>(s, oracle::Options{.numerics = s.numerics.front(),
                                                                    .keep_activations = false,
                                                                    .keep_gradients = false,
                                                                    .mutation = ""});
  std::vector<oracle::Parameter> parameters = oracle->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].weight = state.weights[i];
    parameters[i].m = state.m[i];
    parameters[i].v = state.v[i];
  }
  oracle->restore(std::move(parameters), steps, state.biases);
  return oracle;
}

// Other ranks find the state that was saved, and they go on as the oracle does from there. Where
// ranks fold their own gradients that is not what the first ranks would have done.
TEST_F(FsdpCheckpoint, OnOtherRanksIsTheSameStateFromWhichTheOracleAgrees) {
  for (const Sharding strategy :
       {Sharding::no_shard, Sharding::optim, Sharding::optim_grads, Sharding::optim_grads_params}) {
    for (const auto& [before, after] : {std::pair{3, 2}, {2, 6}, {1, 3}, {6, 1}}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(strategy)) + ", from " + std::to_string(before) +
                   " to " + std::to_string(after));
      WholeState saved, found;
      const auto on_ranks = [&](const Scenario& s, const std::function<void(Trainer&)>& body) {
        const auto data = open_data(s);
        Device device(open_device_under_test());
        run_ranks(device, static_cast<int>(s.parallel.data), 1, [&](Communicator& communicator) {
          Trainer trainer(device, s, *data, {.communicator = &communicator});
          body(trainer);
        });
      };
      on_ranks(scenario(before, strategy), [&](Trainer& trainer) {
        while (trainer.steps_done() < 2) trainer.step();
        add_state(trainer, saved);
        trainer.save(path());
      });
      const Scenario s = scenario(after, strategy);
      std::vector<float> losses;
      std::string digest;
      on_ranks(s, [&](Trainer& trainer) {
        trainer.load(path());
        add_state(trainer, found);
        const std::vector<float> mine{trainer.step().loss, trainer.step().loss};
        losses = mine;
        digest = trainer.weight_digest();
      });
      EXPECT_TRUE(found == saved);
      const auto data = open_data(s);
      const auto oracle = oracle_from(s, saved, 2);
      for (std::int64_t step = 2; step < 4; ++step) {
        EXPECT_EQ(oracle->step(step, data->training(step)).loss,
                  losses[static_cast<std::size_t>(step - 2)]);
      }
      EXPECT_EQ(oracle->weight_digest(), digest);
    }
  }
}

TEST_F(FsdpCheckpoint, KeepsNoFilesOfTheOneBefore) {
  const Scenario s = scenario(3);
  run(s, "", 1, path());
  EXPECT_EQ(files(), 4u);
  run(s, path(), 2, path());
  EXPECT_EQ(files(), 4u);
  run(scenario(2), path(), 3, path());
  EXPECT_EQ(files(), 3u);
  run(scenario(1), path(), 4, path());
  EXPECT_EQ(run(scenario(1), path(), 4, ""), run(scenario(1), "", 4, ""));
}

// Between steps all ranks have the same, within one each has gradients of its own.
TEST_F(FsdpCheckpoint, KeepsNoFilesOfTheOneWithinAStep) {
  const Scenario s = scenario(3, Sharding::no_shard);
  run(s, "", 1, path());
  EXPECT_EQ(files(), 1u);
  run(s, path(), 1, path(), 1);
  EXPECT_EQ(files(), 4u);
  run(s, path(), 2, path());
  EXPECT_EQ(files(), 1u);
}

TEST_F(FsdpCheckpoint, RefusesTornMissingAndChangedFiles) {
  const Scenario s = scenario(2);
  run(s, "", 1, path());
  for (const fs::path& file : rank_files()) {
    std::ifstream in(file, std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    std::string changed = whole;
    changed[changed.size() - 2] = static_cast<char>(changed[changed.size() - 2] ^ 1);
    for (const std::string& torn : {whole.substr(0, whole.size() / 2), changed}) {
      std::ofstream(file, std::ios::binary) << torn;
      EXPECT_THROW(run(s, path(), 2, ""), std::runtime_error) << file;
    }
    fs::remove(file);
    EXPECT_THROW(run(s, path(), 2, ""), std::runtime_error) << file;
    std::ofstream(file, std::ios::binary) << whole;
  }
  EXPECT_EQ(run(s, path(), 4, ""), run(s, "", 4, ""));
}

// A whole file, but of another step: only the index knows.
TEST_F(FsdpCheckpoint, RefusesARankFileOfAnotherCheckpoint) {
  const Scenario s = scenario(2);
  run(s, "", 1, path());
  run(s, "", 2, path() + "-other");
  const auto name = [](std::string base) { return base + ".a.rank-0001-of-0002"; };
  fs::copy_file(name(path() + "-other"), name(path()), fs::copy_options::overwrite_existing);
  EXPECT_THROW(run(s, path(), 2, ""), std::runtime_error);
}

TEST_F(FsdpCheckpoint, LeavesTheOneBeforeValidWhereARankFails) {
  const Scenario s = scenario(2);
  const std::string want = run(s, "", 4, "");
  run(s, "", 1, path());
  // Rank 1 cannot write: a folder is in its place.
  const std::string taken = path() + ".b.rank-0001-of-0002";
  fs::create_directories(taken + "/inside");
  EXPECT_THROW(run(s, path(), 2, path()), std::runtime_error);
  fs::remove_all(taken);
  EXPECT_EQ(run(s, path(), 4, ""), want);
}

// The reason for two sets of files: rank 0 has written its new file when rank 1 fails.
TEST_F(FsdpCheckpoint, WouldLoseTheOneBeforeIfItWroteOverIt) {
  const Scenario s = scenario(2);
  run(s, "", 1, path());
  const std::string of_rank_1 = path() + ".a.rank-0001-of-0002";
  fs::rename(of_rank_1, path() + "-aside");
  fs::create_directories(of_rank_1 + "/inside");
  plant_fault("checkpoint-overwrites-the-valid-one");
  EXPECT_THROW(run(s, "", 2, path()), std::runtime_error);
  plant_fault("");
  fs::remove_all(of_rank_1);
  fs::rename(path() + "-aside", of_rank_1);
  EXPECT_THROW(run(s, path(), 2, ""), std::runtime_error);
}

}  // namespace
}  // namespace lockstep::test
