#include "harness/runner.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <set>
#include <span>
#include <utility>

#include "engine/trainer.h"
#include "harness/checker/redundant_edges.h"
#include "harness/comparison.h"
#include "harness/expectations.h"
#include "harness/explore/recorder.h"
#include "harness/guard.h"
#include "harness/mutate/mutator.h"
#include "harness/offload_bytes.h"
#include "harness/schedules.h"
#include "harness/tee.h"
#include "oracle/oracle.h"
#include "scenarios/legality.h"
#include "scenarios/reader.h"

namespace lockstep {
namespace {

// Schedules that run with their arithmetic; the others run by tags alone.
constexpr std::int64_t kWithArithmetic = 8;
constexpr int kConfirmed =
    8;  // Schedules confirmed, of those that differ by tags, before they are said to agree in bits.

// What later runs of the same case are held against, once the oracle has been run.
struct Remembered {
  std::vector<oracle::StepResult> steps;  // Without tensors.
  std::vector<std::optional<oracle::StepResult>> evaluations;
  std::vector<oracle::Parameter> parameters;  // After the last step.
  std::vector<std::vector<float>> expert_biases;
  std::string digest;
};

void forget_tensors(oracle::StepResult& result) {
  for (oracle::MicrobatchResult& microbatch : result.microbatches) {
    microbatch.activations.clear();
    microbatch.gradients.clear();
  }
}

class Case {
 public:
  Case(const Scenario& scenario, const RunOptions& options)
      : scenario_(scenario), options_(options), result_(unjudged_case(scenario, options)) {}

  CaseResult run() {
    guarded([&] { judge(); });
    return std::move(result_);
  }

 private:
  struct Engine {
    Engine(const Case& of, const SimOptions& sim, bool listened, Observer* observer)
        : comparison(of.scenario_),
          mutator(of.mutator()),
          watched(watch(observer, of.options_.watcher)),
          device(open_judged(of, sim), watched ? &*watched : observer, pressure_of(of.scenario_), mutator.get()),
          trainer(device, of.scenario_, *of.data_,
                  {.dry_run_ledger = !of.options_.bits_alone, .listener = listened ? &comparison : nullptr}) {
      comparison.attach([this](std::span<const StoredValues> list) { return look(list); }, trainer.parameters());
    }
    // Its place tells that nobody but the harness reads here.
    std::vector<std::vector<float>> look(std::span<const StoredValues> list) {
      const char* part = std::exchange(device.place.part, "look");
      std::vector<std::vector<float>> seen = trainer.read(list);
      device.place.part = part;
      return seen;
    }
    // The oracle's products are the model's: another GPU has nothing to be judged by.
    static std::unique_ptr<Backend> open_judged(const Case& of, const SimOptions& sim) {
      auto backend = open_backend(of.options_.device, sim);
      const bool wide = of.scenario_.numerics.front() == Numerics::fp32;
      if (of.options_.device == "cuda" && !wide) once_a_process(guard_tensor_cores, *backend);
      return backend;
    }
    static std::optional<Tee> watch(Observer* judge, Observer* watcher) {
      static Observer silent;
      if (watcher == nullptr) return {};
      return std::optional<Tee>(std::in_place, judge != nullptr ? *judge : silent, *watcher);
    }
    Comparison comparison;
    std::unique_ptr<DoorMutator> mutator;
    std::optional<Tee> watched;
    Device device;
    Trainer trainer;
  };

  void judge() {
    data_ = open_data(scenario_);
    const Scenario::Checker::Schedule& schedule = scenario_.checker.schedule;
    const std::int64_t count = options_.device == "sim" ? std::min(schedule.count, kWithArithmetic) : 1;
    seed_ = schedule.seed;
    observed_run();
    for (std::int64_t i = 0; i < count && held(); ++i) {
      seed_ = schedule.seed + i;
      unobserved_run(sim());
      if (!held() && result_.first_difference) name_better();
    }
    if (held() && options_.device == "sim" && !options_.policy) explore_schedules();
    if (held()) judge_counters();
  }

  // The oracle goes first, so that each tensor of the engine is judged at the moment it is there.
  void observed_run() {
    oracle::Oracle oracle(scenario_, {.numerics = scenario_.numerics.front(), .mutation = options_.mutation});
    remembered_ = {};
    Checker checker(checker_options());
    run_observed(oracle, checker);
    if (held()) checker.throw_found();  // What the end of a run that ends early shows is no finding.
  }

  void run_observed(oracle::Oracle& oracle, Checker& checker) {
    Engine engine(*this, sim(), true, observer(checker));
    result_.device = engine.device.info();
    checked(engine, [&] {
      for (std::int64_t step = 0; step < scenario_.training.steps && !engine.comparison.first(); ++step) {
        observed_step(step, oracle, engine);
      }
      remembered_.parameters = oracle.parameters();
      remembered_.expert_biases = oracle.expert_bias();
      remembered_.digest = oracle.weight_digest();
      judge_digest(engine);
    });
  }

  void observed_step(std::int64_t step, oracle::Oracle& oracle, Engine& engine) {
    const StepData documents = data_->training(step);
    oracle::StepResult want = oracle.step(step, documents);
    engine.comparison.expect_step(step, documents, want, oracle.parameters());
    engine.comparison.finish_step(engine.trainer.step(), true);
    engine.comparison.compare_weights(oracle.parameters());
    engine.comparison.compare_biases(engine.trainer.expert_biases(), oracle.expert_bias());
    std::optional<oracle::StepResult> evaluation;
    if (!engine.comparison.first() && engine.trainer.evaluation_is_due()) {
      const StepData held_out = data_->evaluation(step);
      evaluation = oracle.evaluate(step, held_out);
      engine.comparison.expect_evaluation(step, held_out, *evaluation);
      engine.comparison.finish_evaluation(engine.trainer.evaluate());
      forget_tensors(*evaluation);
    }
    forget_tensors(want);
    remembered_.steps.push_back(std::move(want));
    remembered_.evaluations.push_back(std::move(evaluation));
  }

  // Nobody looks at the device, but the checker sees every call: looking draws edges, so it finds most here.
  void unobserved_run(const SimOptions& sim) {
    Checker checker(checker_options());
    CallLog log(checker);
    const bool first = seed_ == scenario_.checker.schedule.seed && sim.policy != SimOptions::Policy::given;
    const bool logged = options_.edges && scenario_.checker.hazards && first;
    Observer* judge = logged ? static_cast<Observer*>(&log) : observer(checker);
    static Observer silent;
    ProgramRecorder recorder;
    Tee tee(judge != nullptr ? *judge : silent, recorder);
    const bool recorded = first && options_.device == "sim";
    run_unobserved(sim, recorded ? &tee : judge);
    if (held()) checker.throw_found();
    if (logged && held()) result_.redundant_edges = redundant_edges(log);
    result_.counters["hazards_checked"] = checker.checked();
    launches_ = checker.launches();
    if (recorded) program_ = std::move(recorder).finish();
  }

  // All schedules, by tags. What the host would see otherwise is confirmed with the arithmetic, on just that schedule.
  void explore_schedules() {
    ExploreOptions options = explore_options(scenario_);
    result_.schedules = bound_text(program_, options);
    result_.counters["schedules_explored"] = options.count;
    for (int confirmed = 0; confirmed < kConfirmed && options.count > 0; ++confirmed) {
      const Exploration found = explore(program_, options);
      if (!found.unstable.empty()) return broken("schedule", found.unstable);
      if (scenario_.checker.hazards && !options_.bits_alone && found.reordered)
        return violated("schedule", missed(*found.reordered));
      if (!found.observed) return;
      seed_ = static_cast<std::int64_t>(found.observed->seed);
      confirm(*found.observed);
      if (!held()) return;
      options.seed = found.observed->seed + 1;
      options.count -= found.schedules;
    }
  }

  void confirm(const FoundSchedule& difference) {
    SimGiven given{turns(program_, difference.order)};
    SimOptions sim = sim_options(scenario_, seed_);
    sim.policy = SimOptions::Policy::given;
    sim.given = &given;
    const Counters counters = result_.counters;
    unobserved_run(sim);
    result_.counters = counters;
    if (!held()) result_.reason += "; on a schedule in which " + met_otherwise(difference);
  }

  std::string met_otherwise(const FoundSchedule& difference) const {
    if (difference.item < 0) return "memory was written in another order";
    const ProgramItem& item = program_.items[static_cast<std::size_t>(difference.item)];
    return describe(item.work, program_.threads[static_cast<std::size_t>(item.thread)].name) +
           " met other memory than in the order of the calls";
  }
  std::string missed(const FoundSchedule& difference) const {
    return "the checker saw no hazard, but on schedule " + std::to_string(difference.seed) + " " +
           met_otherwise(difference);
  }

  void run_unobserved(const SimOptions& sim, Observer* told) {
    Engine engine(*this, sim, false, told);
    checked(engine, [&] {
      static const StepData no_documents;
      for (std::int64_t step = 0; step < scenario_.training.steps && !engine.comparison.first(); ++step) {
        engine.comparison.expect_step(step, no_documents, remembered_.steps[step], remembered_.parameters);
        engine.comparison.finish_step(engine.trainer.step(), false);
        const auto& evaluation = remembered_.evaluations[step];
        if (engine.trainer.evaluation_is_due() && evaluation) {
          engine.comparison.expect_evaluation(step, no_documents, *evaluation);
          engine.comparison.finish_evaluation(engine.trainer.evaluate());
        }
      }
      if (!engine.comparison.first()) {
        engine.comparison.compare_weights(remembered_.parameters);
        engine.comparison.compare_biases(engine.trainer.expert_biases(), remembered_.expert_biases);
      }
      judge_digest(engine);
    });
    result_.counters = engine.trainer.counters();
  }

  // The difference showed where nobody looked; an observed run of the same schedule may name an earlier tensor.
  void name_better() {
    const CaseResult blind = result_;
    result_.verdict = Verdict::holds;
    observed_run();
    if (!held()) return;
    result_ = blind;
    result_.reason += "; seen only when nobody looks at the device between passes";
  }

  // A difference that was noted before the engine gave up comes first.
  void checked(Engine& engine, const std::function<void()>& body) {
    const auto take = [&] {
      const auto& first = engine.comparison.first();
      if (first) violated(first->judge, first->reason, first->where);
      return first.has_value();
    };
    try {
      body();
      take();
    } catch (const std::exception&) {
      if (!take()) throw;
    }
  }

  void judge_digest(Engine& engine) {
    if (engine.comparison.first() || engine.trainer.weight_digest() == remembered_.digest) return;
    violated("weights",
             "the weight digest is " + engine.trainer.weight_digest() + ", the oracle's " + remembered_.digest);
  }

  void judge_counters() {
    std::vector<Expectation> expected = expectations(scenario_, *data_);
    expect_the_oracles_counts(expected);
    if (scenario_.checker.hazards && !options_.bits_alone) {
      expected.push_back({.counter = "hazards_checked", .min = 1, .why = "checker.hazards is true"});
    }
    if (options_.device == "sim" && !options_.policy) {
      expected.push_back(
          {.counter = "schedules_explored", .min = scenario_.checker.schedule.count, .why = "checker.schedule.count"});
    }
    if (!scenario_.checker.delays.empty()) {
      expected.push_back({.counter = "delays_applied", .min = 1, .why = "checker.delays"});
    }
    if (scenario_.checker.hazards && !options_.bits_alone) {
      expected.push_back({.counter = "graph_replays",
                          .min = launches_,
                          .max = launches_,
                          .why = "so many launches were seen at the device door"});
    }
    const std::pair<Poison, const char*> kinds[] = {{Poison::fresh, "bytes_poisoned"},
                                                    {Poison::padding, "bytes_poisoned_padding"},
                                                    {Poison::staging, "bytes_poisoned_staging"}};
    for (const auto& [kind, counter] : kinds) {
      if (lockstep::holds(scenario_.checker.poison, kind)) {
        expected.push_back({.counter = counter, .min = 1, .why = "checker.poison"});
      }
    }
    const std::string vacuity = unmet(expected, result_.counters);
    if (!vacuity.empty()) return violated("vacuous", vacuity);
    const std::string rule = unmet(scenario_.expect.counters, result_.counters);
    if (!rule.empty()) violated("counters", rule);
  }

  // Where each pair went is arithmetic, so the oracle counts it.
  void expect_the_oracles_counts(std::vector<Expectation>& expected) const {
    std::int64_t pairs = 0, dropped = 0, microbatches = 0, follows = 0;
    const OffloadDemand demand = offload_demand(scenario_);
    std::set<std::pair<int, std::size_t>> used;
    for (const oracle::StepResult& step : remembered_.steps) {
      for (const oracle::MicrobatchResult& microbatch : step.microbatches) {
        ++microbatches;
        for (const oracle::ExpertStatistics<float>& layer : microbatch.experts) {
          const auto found = demand.per_pair.find(layer.layer);
          const std::int64_t bytes = found == demand.per_pair.end() ? 0 : found->second;
          for (std::size_t e = 0; e < layer.chosen.size(); ++e) {
            pairs += layer.chosen[e];
            dropped += layer.dropped[e];
            follows += (layer.chosen[e] - layer.dropped[e]) * bytes;
            if (layer.chosen[e] > 0) used.insert({layer.layer, e});
          }
        }
      }
    }
    const auto experts = static_cast<std::int64_t>(used.size());
    expected.push_back({"pairs_routed", pairs, pairs, "the oracle's count"});
    expected.push_back({"tokens_dropped", dropped, dropped, "the oracle's count"});
    expected.push_back({"experts_used", experts, experts, "the oracle's count"});
    if (demand.per_pair.empty()) return;
    const std::int64_t bytes = demand.fixed * microbatches + follows;
    for (const char* counter : {"bytes_planned", "bytes_offloaded", "bytes_reloaded"}) {
      expected.push_back({counter, bytes, bytes, "rows that the oracle's experts have"});
    }
  }

  void guarded(const std::function<void()>& body) {
    const auto start = std::chrono::steady_clock::now();
    try {
      body();
    } catch (const EngineViolation& violation) {
      violated(violation.judge(), violation.what());
    } catch (const DeviceError& error) {
      broken("device", error.what());
    } catch (const std::bad_alloc&) {
      broken("memory", "out of host memory");
    } catch (const std::exception& error) {
      broken("exception", error.what());
    }
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    // The token names the schedule that failed.
    if (!held()) {
      result_.token = make_token(narrowed(scenario_, scenario_.numerics.front(), seed_));
      result_.replay = replay_line(scenario_, result_.token, options_);
    }
  }

  Observer* observer(Checker& checker) const {
    return scenario_.checker.hazards && !options_.bits_alone ? &checker : nullptr;
  }
  CheckerOptions checker_options() const { return {.mutation = options_.blindness, .dropped = {}}; }
  std::unique_ptr<DoorMutator> mutator() const {
    const std::optional<DoorFault> fault = door_fault(options_.fault);
    return fault ? std::make_unique<DoorMutator>(scenario_.model.pattern, *fault) : nullptr;
  }
  SimOptions sim() const {
    SimOptions sim = sim_options(scenario_, seed_);
    if (options_.policy) sim.policy = *options_.policy;
    return sim;
  }
  bool held() const { return result_.verdict == Verdict::holds; }
  void violated(const std::string& judge, const std::string& reason, std::optional<FirstDifference> where = {}) {
    result_.verdict = Verdict::violated;
    result_.judge = judge;
    result_.reason = reason;
    result_.first_difference = std::move(where);
  }
  void broken(const std::string& judge, const std::string& reason) {
    result_.verdict = Verdict::broken;
    result_.judge = judge;
    result_.reason = reason;
  }

  const Scenario& scenario_;
  const RunOptions& options_;
  std::unique_ptr<DataSource> data_;
  Program program_;  // What the first unobserved run put on its streams.
  CaseResult result_;
  Remembered remembered_;
  std::int64_t seed_ = 0;
  std::int64_t launches_ = 0;  // Of the last run, as the checker saw them.
};

// As a shell reads it: quoted unless it is plain.
std::string shell_word(const std::string& text) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) || std::strchr("/._-+:,@%", c); };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace

std::string replay_line(const Scenario& scenario, const std::string& token, const RunOptions& options) {
  std::string line = "lockstep replay " + token + " --device " + options.device;
  // A token knows the documents by a path that is relative to a file which it does not know.
  const bool reads_bytes = scenario.data.kind == DataKind::text || scenario.data.kind == DataKind::jsonl;
  if (reads_bytes && std::filesystem::path(scenario.data.path).is_relative()) {
    line +=
        " --data-from " + shell_word((std::filesystem::current_path() / scenario.folder).lexically_normal().string());
  }
  if (!options.fault.empty()) line += " --plant " + options.fault;
  if (!options.mutation.empty()) line += " --mutate-oracle " + options.mutation;
  if (!options.blindness.empty()) line += " --mutate-checker " + options.blindness;
  return line;
}

CaseResult unjudged_case(const Scenario& scenario, const RunOptions& options) {
  CaseResult result;
  result.name = scenario.name;
  result.numerics = to_text(scenario.numerics.front());
  result.token = make_token(scenario);
  result.replay = replay_line(scenario, result.token, options);
  return result;
}

CaseResult run_case(const Scenario& scenario, const RunOptions& options) { return Case(scenario, options).run(); }

}  // namespace lockstep
