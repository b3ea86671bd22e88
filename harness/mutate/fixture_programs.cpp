#include "harness/mutate/fixture_programs.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>

#include "engine/data/loader.h"
#include "engine/train/trainer.h"
#include "harness/base/run_folder.h"
#include "harness/checker/checker.h"
#include "harness/inject/fault_injector.h"
#include "harness/judge/thread_ranks.h"
#include "kernels/diagnostics/poison.h"
#include "kernels/ops/accumulate.h"
#include "kernels/ops/optimizer.h"
#include "oracle/oracle.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

// A checker, two streams and a few buffers with values.
struct Bench {
  explicit Bench(const std::string& blindness)
      : checker({.stop = false, .mutation = blindness, .dropped = {}}) {
    for (const Tensor<float>& t : {x, y}) compute.fill(t.data, 0, kBytes);
    compute.synchronize();
  }
  static constexpr std::size_t kBytes = 256;
  Checker checker;
  Device device{open_sim({.policy = SimOptions::Policy::program}), &checker};
  Stream compute{device, "compute"}, loader{device, "loader"};
  Event event{device};
  PinnedBuffer staging{device, kBytes};
  TensorPool pool{device};
  Tensor<float> x = pool.make<float>(8, 8), y = pool.make<float>(8, 8);

  void add(const Stream& stream, Tensor<float> from, Tensor<float> to) const {
    stream.submit(AccumulateGradient{.g = from, .acc = to});
  }
  void stage() { device.host_writes(staging.data(), kBytes); }
  void load(const Stream& stream) const {
    stream.copy(x.data, staging.data(), kBytes, CopyKind::host_to_device);
  }
};

CaseResult held(const std::string& name) {
  CaseResult result;
  result.name = name;
  return result;
}
CaseResult violated(const std::string& name, JudgeKind judge, const std::string& reason) {
  CaseResult result = held(name);
  result.verdict = Verdict::violated;
  result.judge = judge;
  result.reason = reason;
  return result;
}

// Judges a program by the hazards that the checker must report: the kinds of its hazards, in order.
CaseResult judged(const char* name, const RunOptions& options, std::vector<HazardKind> want,
                  const std::function<void(Bench&)>& program) {
  Bench bench(options.planted.checker);
  program(bench);
  const std::vector<Hazard> found = distinct(bench.checker.hazards());
  const bool same =
      std::equal(found.begin(), found.end(), want.begin(), want.end(),
                 [](const Hazard& hazard, HazardKind kind) { return hazard.kind == kind; });
  if (same) return held(name);
  return violated(name, JudgeKind::checker,
                  std::string(name) + ": the checker should find " +
                      (want.empty() ? "nothing" : std::string(to_text(want.front()))) +
                      " and finds " +
                      (found.empty() ? "nothing" : std::string(to_text(found.front().kind))));
}

CaseResult columns(const RunOptions& options) {
  return judged("columns-of-one-buffer", options, {}, [](Bench& b) {
    b.add(b.compute, b.x.columns(0, 3), b.y.columns(0, 3));
    b.add(b.loader, b.x.columns(3, 5), b.y.columns(3, 5));
  });
}

CaseResult external_record(const RunOptions& options) {
  return judged("a-wait-for-a-record-inside-a-graph", options, {}, [](Bench& b) {
    b.compute.begin_capture();
    b.compute.fill(b.x.data, 1, Bench::kBytes);
    b.compute.record(b.event, true);
    const Graph graph = b.compute.end_capture();
    b.compute.launch(graph);
    b.loader.wait(b.event);
    b.loader.fill(b.x.data, 1, Bench::kBytes);
    b.loader.synchronize();
  });
}

CaseResult fork(const RunOptions& options) {
  return judged("a-fork-that-is-joined-too-late", options, {HazardKind::write_after_write},
                [](Bench& b) {
                  const Event forked(b.device), joined(b.device);
                  b.compute.begin_capture();
                  b.compute.record(forked);
                  b.loader.wait(forked);
                  b.loader.fill(b.x.data, 1, Bench::kBytes);
                  b.loader.record(joined);
                  b.compute.fill(b.x.data, 1, Bench::kBytes);
                  b.compute.wait(joined);
                  const Graph graph = b.compute.end_capture();
                  b.compute.launch(graph);
                  b.compute.synchronize();
                });
}

// Each rank's host knows what it has waited for itself.
CaseResult other_host(const RunOptions& options) {
  return judged("a-wait-of-another-rank", options, {HazardKind::write_after_write}, [](Bench& b) {
    b.device.turn_of(0);
    b.loader.fill(b.x.data, 1, Bench::kBytes);
    b.loader.synchronize();
    b.device.turn_of(1);
    b.compute.fill(b.x.data, 1, Bench::kBytes);
    b.device.turn_of(-1);
    b.compute.synchronize();
    b.loader.synchronize();
  });
}

CaseResult staging(const RunOptions& options) {
  return judged("staging-memory-written-twice", options, {}, [](Bench& b) {
    for (int i = 0; i < 2; ++i) {
      b.stage();
      b.load(b.loader);
      b.loader.synchronize();
    }
  });
}

CaseResult poison(const RunOptions& options) {
  return judged("poison-is-read", options, {HazardKind::use_before_write}, [](Bench& b) {
    const Tensor<float> fresh = b.pool.make<float>(8, 8);
    b.compute.submit(lockstep::poison(fresh.data, static_cast<std::int64_t>(Bench::kBytes)));
    b.add(b.compute, fresh, b.y);
    b.compute.synchronize();
  });
}

CaseResult overwrite(const RunOptions& options) {
  return judged("an-overwrite-of-what-is-read", options, {HazardKind::write_after_read},
                [](Bench& b) {
                  b.stage();
                  b.add(b.compute, b.x, b.y);
                  b.load(b.loader);
                  b.compute.synchronize();
                  b.loader.synchronize();
                });
}

// ---- A host that runs ahead of the device -------------------------------------------------------

CaseResult run_ahead(const RunOptions& options) {
  Checker checker({.stop = false, .mutation = options.planted.checker, .dropped = {}});
  run_ahead_of_the_device(checker);
  if (checker.hazards().empty()) return held("host-runs-ahead");
  return violated("host-runs-ahead", JudgeKind::hazard, text(checker.hazards().front()));
}

// ---- A run continued from a checkpoint ----------------------------------------------------------

CaseResult resume(const RunOptions& options) {
  Scenario scenario;
  scenario.name = "continued-from-checkpoint";
  scenario.numerics = {Numerics::bf16};
  scenario.model.pattern = "M*E";
  scenario.model.dropout = Ratio{200'000};
  scenario.model.moe.router = Router::sigmoid;
  scenario.model.moe.expert_bias = true;
  scenario.training.steps = 4;
  const auto data = open_data(scenario);
  const RunFolder folder;
  const std::string file = folder.path() + "/state";
  for (const bool first : {true, false}) {
    const auto injector = planted_alias();
    Device device(open_sim(), nullptr, {}, injector.get());
    Trainer trainer(device, scenario, *data);
    if (!first) trainer.load(file);
    for (int step = 0; step < 2; ++step) trainer.step();
    if (first) {
      trainer.accumulate(1);
      trainer.save(file);
      continue;
    }
    oracle::Oracle oracle(scenario,
                          {.numerics = Numerics::bf16, .mutation = options.planted.oracle});
    for (std::int64_t step = 0; step < scenario.training.steps; ++step)
      oracle.step(step, data->training(step));
    const std::vector<float> bias = trainer.read(trainer.expert_biases().front().bias);
    if (trainer.weight_digest() == oracle.weight_digest() && bias == oracle.expert_bias().back()) {
      return held(scenario.name);
    }
    return violated(scenario.name, JudgeKind::weights,
                    "after two steps, half of one, a checkpoint and the rest the weights or "
                    "selection biases differ "
                    "from those of four steps");
  }
  return {};
}

// ---- A run that goes back to its own checkpoint, while its graphs live and gathers are under way

std::string digest_of_a_run_that_goes_back(const Scenario& scenario, const DataSource& data,
                                           Checker& checker) {
  const RunFolder folder;
  const std::string file = folder.path() + "/state";
  const auto injector = planted_alias();
  Device device(open_sim(), &checker, {}, injector.get());
  std::string digest;
  const auto no_options = [](int) { return TrainerOptions{}; };
  with_trainers(device, scenario, data, no_options, [&](ThreadRank& rank) {
    const auto train_until = [&](std::int64_t steps) {
      while (rank.trainer.steps_done() < steps) rank.trainer.step();
    };
    train_until(2);
    rank.trainer.save(file);
    train_until(4);
    rank.trainer.load(file);
    train_until(3);
    rank.trainer.accumulate(1);
    rank.trainer.load(file);
    train_until(scenario.training.steps);
    const std::string own = rank.trainer.weight_digest();
    if (rank.number() == 0) digest = own;
  });
  return digest;
}

CaseResult go_back(const RunOptions& options) {
  Scenario scenario;
  scenario.name = "back-to-its-checkpoint";
  scenario.numerics = {Numerics::bf16};
  scenario.model.pattern = "M*-";
  scenario.training.steps = 6;
  scenario.fsdp.strategy = Sharding::optim_grads_params;
  scenario.parallel.data = 3;
  const auto data = open_data(scenario);
  Checker checker({.stop = false, .mutation = options.planted.checker, .dropped = {}});
  const std::string digest = digest_of_a_run_that_goes_back(scenario, *data, checker);
  oracle::Oracle oracle(scenario, {.numerics = Numerics::bf16, .mutation = options.planted.oracle});
  for (std::int64_t step = 0; step < scenario.training.steps; ++step)
    oracle.step(step, data->training(step));
  if (!checker.hazards().empty())
    return violated(scenario.name, JudgeKind::hazard, text(checker.hazards().front()));
  if (digest == oracle.weight_digest()) return held(scenario.name);
  return violated(scenario.name, JudgeKind::weights,
                  "a run that went back to its checkpoint of step 2, and again within a step, has "
                  "other weights at its "
                  "end");
}

}  // namespace

void run_ahead_of_the_device(Observer& observer) {
  const auto injector = planted_alias();
  Device device(open_sim(), &observer, {}, injector.get());
  const PackShape shape{.rows = 16};
  const Stream compute(device, "compute");
  Loader loader(device, shape, 4, 1);
  TensorPool pool(device);
  const Tensor<std::int32_t> tokens = pool.make<std::int32_t>(1, 16);
  const Tensor<StepState> state = pool.make<StepState>(1, 1);
  const HostPackedBatch pack{
      std::vector<std::int32_t>(16), std::vector<std::int32_t>(16), {16}, {0}, 16};
  for (int step = 0; step < 3; ++step) {
    device.place = {.step = step};
    loader.load_state({}, true);
    for (int pass = 0; pass < (step == 0 ? 2 : 1);
         ++pass) {  // Loads with and without a new state before them.
      loader.load(0, pack, false, compute);
      if (pass == 0) loader.wait_for_state(compute);
      loader.wait_for(0, compute);
      compute.copy(tokens.data, loader.inputs(0).tokens.data, 64, CopyKind::device_to_device);
      loader.consumed(0, compute);
    }
    compute.copy(state.data, loader.state(true).data, sizeof(StepState),
                 CopyKind::device_to_device);
    loader.state_consumed(compute);
  }
  compute.synchronize();
}

const std::vector<FixtureProgram>& fixture_programs() {
  static const std::vector<FixtureProgram> list{
      {"host-runs-ahead", run_ahead},
      {"continued-from-checkpoint", resume},
      {"back-to-its-checkpoint", go_back},
      {"columns-of-one-buffer", columns},
      {"a-wait-for-a-record-inside-a-graph", external_record},
      {"a-fork-that-is-joined-too-late", fork},
      {"a-wait-of-another-rank", other_host},
      {"staging-memory-written-twice", staging},
      {"poison-is-read", poison},
      {"an-overwrite-of-what-is-read", overwrite}};
  return list;
}

}  // namespace lockstep
