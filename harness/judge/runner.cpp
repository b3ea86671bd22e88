#include "harness/judge/runner.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <set>
#include <tuple>
#include <utility>

#include "harness/case/nothing_planted.h"
#include "harness/case/schedules.h"
#include "harness/checker/redundant_edges.h"
#include "harness/expect/blind_spots.h"
#include "harness/expect/expectations.h"
#include "harness/expect/graph_memory.h"
#include "harness/expect/offload_bytes.h"
#include "harness/expect/rank_counters.h"
#include "harness/explore/recorder.h"
#include "harness/inject/device_fault.h"
#include "harness/judge/eager_judge.h"
#include "harness/judge/eager_reference.h"
#include "harness/judge/judged_run.h"
#include "harness/judge/judged_steps.h"
#include "harness/judge/tee.h"
#include "scenarios/documents/layout.h"
#include "scenarios/io/reader.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// Schedules that run with their arithmetic; the others run by tags alone.
constexpr std::int64_t kWithArithmetic = 8;
// Of the schedules that differ by tags, so many are confirmed before they are said to agree in bits.
constexpr int kConfirmed = 8;

class Case {
 public:
  Case(const Scenario& scenario, const RunOptions& options)
      : scenario_(scenario), options_(options), result_(unjudged_case(scenario, options)) {}

  CaseResult run() {
    guarded([&] { judge(); });
    return std::move(result_);
  }

 private:
  void judge() {
    data_ = open_data(scenario_);
    const Scenario::Checker::Schedule& schedule = scenario_.checker.schedule;
    const std::int64_t most = explores() ? kWithArithmetic : schedule.count;
    const std::int64_t count = options_.device == "sim" ? std::min(schedule.count, most) : 1;
    seed_ = schedule.seed;
    judges_steps() ? observed_run() : reference_run();
    for (std::int64_t i = 0; i < count && held(); ++i) {
      seed_ = (schedule.seed + i) & kMostSeed;
      unobserved_run(sim());
      if (!held() && (result_.first_difference || result_.judge == kElsewhere)) name_better();
    }
    if (held() && explores()) explore_schedules();
    if (held()) judge_counters();
  }

  // An eager run goes first, without what is planted, and the others are held against it.
  void reference_run() {
    const Scenario plain = eager(scenario_);
    RunOptions sound = options_;
    sound.fault.clear();
    Checker checker(checker_options());
    {
      const NothingPlanted nothing_planted;
      JudgedRun run(plain, *data_, sound, sim(), false, observer(checker));
      result_.device = run.device().info();
      checked(run, [&] {
        run.on_ranks([&](JudgedRun::Rank& rank) {
          EagerReference reference(plain, rank);
          for (std::int64_t step = 0; step < plain.training.steps; ++step) {
            reference.step();
            if (rank.engine.trainer.evaluation_is_due()) reference.evaluate();
          }
          std::move(reference).remember(remembered_);
        });
      });
    }
    if (held()) checker.throw_found();
    if (!held() || is_judged_by_an_eager_run(scenario_, options_.device)) return;
    const std::string differ = first_losses_differ(scenario_, *data_, remembered_);
    if (!differ.empty()) violated("loss", differ);
  }

  std::unique_ptr<Judge> judge_of_run() const {
    if (!is_judged_by_an_eager_run(scenario_, options_.device)) return make_oracle_judge(scenario_, options_.mutation);
    return make_eager_judge(scenario_, *data_, options_.device, options_.ranks != nullptr ? options_.ranks->gpu : 0);
  }

  // The judge goes first, so that each tensor of the engine is judged at the moment it is there.
  void observed_run() {
    JudgedSteps steps(*data_, judge_of_run());
    remembered_ = {};
    Checker checker(checker_options());
    run_observed(steps, checker);
    if (held()) checker.throw_found();  // What the end of a run that ends early shows is no finding.
  }

  void run_observed(JudgedSteps& steps, Checker& checker) {
    JudgedRun run(scenario_, *data_, options_, sim(), true, observer(checker));
    result_.device = run.device().info();
    checked(run, [&] {
      run.on_ranks([&](JudgedRun::Rank& rank) {
        std::int64_t step = 0;
        while (step < scenario_.training.steps && observed_step(step, steps, rank)) ++step;
        if (step == scenario_.training.steps) judge_digest(rank, steps.judge().weight_digest());
      });
      remembered_ = std::move(steps).remember();
    });
  }

  // Whether no rank has found anything.
  bool observed_step(std::int64_t step, JudgedSteps& steps, JudgedRun::Rank& rank) {
    Trainer& trainer = rank.engine.trainer;
    const JudgedSteps::Judged& judged = steps.step(step);
    rank.comparison.expect_step(step, judged.documents, judged.want, steps.judge().parameters());
    rank.comparison.finish_step(trainer.step(), true);
    rank.comparison.compare_weights(steps.judge().parameters());
    rank.comparison.compare_biases(trainer.expert_biases(), steps.judge().expert_bias());
    if (!rank.holds_so_far()) return false;
    if (!trainer.evaluation_is_due()) return true;
    const JudgedSteps::Judged& held_out = steps.evaluation(step);
    rank.comparison.expect_evaluation(step, held_out.documents, held_out.want);
    rank.comparison.finish_evaluation(trainer.evaluate(), true);
    return rank.holds_so_far();
  }

  // Nobody looks at the device, but the checker sees every call: looking draws edges, so it finds most here.
  void unobserved_run(const SimOptions& sim) {
    Checker checker(checker_options());
    CallLog log(checker);
    const bool first = seed_ == scenario_.checker.schedule.seed && sim.policy != SimOptions::Policy::given;
    const bool logged = options_.edges && scenario_.checker.hazards && first;
    Observer* judge = logged ? static_cast<Observer*>(&log) : observer(checker);
    ProgramRecorder recorder;
    Tee tee(judge != nullptr ? std::vector<Observer*>{judge, &recorder} : std::vector<Observer*>{&recorder});
    const bool recorded = first && options_.device == "sim";
    run_unobserved(sim, recorded ? &tee : judge);
    if (held()) checker.throw_found();
    if (logged && held()) result_.redundant_edges = redundant_edges(log);
    result_.counters["hazards_checked"] = checker.checked();
    launches_ = checker.launches();
    captured_calls_ = checker.captured_calls();
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
      if (checks() && found.reordered) return violated("schedule", missed(*found.reordered));
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
    JudgedRun run(scenario_, *data_, options_, sim, false, told);
    checked(run, [&] {
      run.on_ranks([&](JudgedRun::Rank& rank) {
        std::int64_t step = 0;
        while (step < scenario_.training.steps && unobserved_step(step, rank)) ++step;
        run.count(rank.engine);
        if (step < scenario_.training.steps) return;
        rank.comparison.compare_weights(remembered_.parameters);
        rank.comparison.compare_biases(rank.engine.trainer.expert_biases(), remembered_.expert_biases);
        if (rank.holds_so_far()) judge_digest(rank, remembered_.digest);
      });
    });
    delayed_ = run.device().delayed();
    result_.counters = merged(run.counters(), apart());
    const std::string differ = disagreement(run.counters());
    if (held() && !differ.empty()) violated("vacuous", differ);
  }

  bool unobserved_step(std::int64_t step, JudgedRun::Rank& rank) {
    static const StepData no_documents;
    Trainer& trainer = rank.engine.trainer;
    const auto at = static_cast<std::size_t>(step);
    rank.comparison.expect_step(step, no_documents, remembered_.steps[at], remembered_.parameters);
    rank.comparison.finish_step(trainer.step(), false);
    const auto& evaluation = remembered_.evaluations[at];
    if (trainer.evaluation_is_due() && evaluation) {
      rank.comparison.expect_evaluation(step, no_documents, *evaluation);
      rank.comparison.finish_evaluation(trainer.evaluate(), false);
    }
    return rank.holds_so_far();
  }

  // The difference showed where nobody looked; an observed run of the same schedule may name an earlier tensor.
  void name_better() {
    if (!judges_steps()) return;
    const CaseResult blind = result_;
    result_.verdict = Verdict::holds;
    observed_run();
    if (!held()) return;
    result_ = blind;
    result_.reason += "; seen only when nobody looks at the device between passes";
  }

  // A difference that was noted before the engine gave up comes first.
  void checked(JudgedRun& run, const std::function<void()>& body) {
    const auto take = [&] {
      const std::optional<Difference> first = run.first();
      if (first) violated(first->judge, first->reason, first->where);
      if (!first && run.differs()) violated(kElsewhere, "another rank has found a difference");
      return first.has_value();
    };
    try {
      body();
      struck_ += run.struck();
      take();
    } catch (const std::exception&) {
      struck_ += run.struck();
      if (!take()) throw;
    }
  }

  void judge_digest(JudgedRun::Rank& rank, const std::string& want) {
    const std::string got = rank.engine.trainer.weight_digest();
    if (got == want) return;
    violated("weights", "the weight digest of rank " + std::to_string(rank.engine.number()) + " is " + got +
                            ", the oracle's " + want);
  }

  void judge_counters() {
    std::vector<Expectation> expected = expectations(scenario_, *data_);
    if (judges_steps()) expect_the_oracles_counts(expected);
    if (explores()) {
      expected.push_back(
          {.counter = "schedules_explored", .min = scenario_.checker.schedule.count, .why = "checker.schedule.count"});
    }
    if (!scenario_.checker.delays.empty()) {
      expected.push_back({.counter = "delays_applied", .min = 1, .why = "checker.delays"});
    }
    if (checks()) {
      expected.push_back({.counter = "hazards_checked", .min = 1, .why = "checker.hazards is true"});
      // All ranks launch alike.
      const std::int64_t ranks = options_.ranks != nullptr ? options_.ranks->here() : scenario_.parallel.data;
      expected.push_back({.counter = "graph_replays",
                          .min = (launches_ + ranks - 1) / ranks,
                          .max = launches_ / ranks,
                          .why = "so many launches of a rank were seen at the device door"});
      // Without a limit the documents alone say so.
      for (const auto& [stream, calls] : captured_calls_) {
        if (scenario_.cuda_graph.graph_memory_limit == 0) break;
        const GraphTally tally = tally_graphs(scenario_, *data_, calls);
        const char* why = "cuda_graph.graph_memory_limit, and the sizes of graphs seen at the device door";
        expected.push_back({"graphs_captured", tally.captured, tally.captured, why});
        expected.push_back({"graphs_evicted", tally.evicted, tally.evicted, why});
      }
    }
    const std::pair<Poison, const char*> kinds[] = {{Poison::fresh, "bytes_poisoned"},
                                                    {Poison::padding, "bytes_poisoned_padding"},
                                                    {Poison::staging, "bytes_poisoned_staging"}};
    for (const auto& [kind, counter] : kinds) {
      if (lockstep::holds(scenario_.checker.poison, kind)) {
        expected.push_back({.counter = counter, .min = 1, .why = "checker.poison"});
      }
    }
    if (!some_step_has_a_target(scenario_, *data_)) {
      return violated("vacuous", "no step has a target: every loss is zero");
    }
    const std::string same = ranks_with_the_same_documents(scenario_, *data_);
    if (!same.empty()) result_.blind.push_back(same);
    const std::string vacuity = unmet(expected, result_.counters);
    if (!vacuity.empty()) return violated("vacuous", vacuity);
    const std::string idle = idle_delay();
    if (!idle.empty()) return violated("vacuous", idle);
    const std::string rule = unmet(scenario_.expect.counters, result_.counters);
    if (!rule.empty()) violated("counters", rule);
  }

  // A delay that nothing waited for, beside others that something did. A process has no calls of others' ranks.
  std::string idle_delay() const {
    const std::vector<Scenario::Delay>& delays = scenario_.checker.delays;
    for (std::size_t i = 0; i < delays.size(); ++i) {
      const std::int64_t rank = delays[i].rank.value_or(-1);
      const bool of_others =
          options_.ranks != nullptr && rank >= 0 &&
          (rank < options_.ranks->first() || rank >= options_.ranks->first() + options_.ranks->here());
      if (of_others || delayed_[i]) continue;
      return "checker.delays[" + std::to_string(i) + "] delayed nothing (stream " + word(delays[i].stream) +
             (rank < 0 ? ")" : ", rank " + std::to_string(rank) + ")");
    }
    return "";
  }

  // Where each pair went is arithmetic, so the oracle counts it.
  void expect_the_oracles_counts(std::vector<Expectation>& expected) const {
    std::int64_t pairs = 0, dropped = 0, microbatches = 0, follows = 0;
    const OffloadDemand demand = offload_demand(scenario_);
    std::set<std::tuple<std::size_t, int, std::size_t>> used;  // By each rank.
    const auto ranks = static_cast<std::size_t>(scenario_.parallel.data);
    for (const oracle::StepResult& step : remembered_.steps) {
      for (std::size_t m = 0; m < step.microbatches.size(); ++m) {
        ++microbatches;
        for (const oracle::ExpertStatistics<float>& layer : step.microbatches[m].experts) {
          const auto found = demand.per_pair.find(layer.layer);
          const std::int64_t bytes = found == demand.per_pair.end() ? 0 : found->second;
          for (std::size_t e = 0; e < layer.chosen.size(); ++e) {
            pairs += layer.chosen[e];
            dropped += layer.dropped[e];
            follows += (layer.chosen[e] - layer.dropped[e]) * bytes;
            if (layer.chosen[e] > 0) used.insert({m % ranks, layer.layer, e});
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
    } catch (const CollectiveMismatch& mismatch) {
      violated("collective", mismatch.what());
    } catch (const CollectiveHang& hang) {
      broken("watchdog", hang.what());
    } catch (const DeviceError& error) {
      broken("device", error.what());
    } catch (const std::bad_alloc&) {
      broken("memory", "out of host memory");
    } catch (const std::exception& error) {
      broken("exception", error.what());
    }
    if (door_fault(options_.fault)) result_.counters[kStruck] = struck_;
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    // The token names the schedule that failed.
    if (!held()) {
      result_.token = make_token(narrowed(scenario_, scenario_.numerics.front(), seed_));
      result_.replay = replay_line(scenario_, result_.token, options_);
    }
  }

  bool checks() const { return scenario_.checker.hazards && !options_.bits_alone; }
  Observer* observer(Checker& checker) const { return checks() ? &checker : nullptr; }
  CheckerOptions checker_options() const { return {.mutation = options_.blindness, .dropped = {}}; }
  SimOptions sim() const {
    SimOptions sim = sim_options(scenario_, seed_);
    if (options_.policy) sim.policy = *options_.policy;
    return sim;
  }
  // Where ranks are processes, each knows its own calls alone.
  bool apart() const { return options_.ranks != nullptr && options_.ranks->apart(); }
  bool judges_steps() const { return has_judge_of_steps(scenario_, options_.device); }
  bool explores() const { return options_.device == "sim" && !options_.policy && !apart(); }
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
  std::int64_t struck_ = 0;    // How often the fault at the device door did something.
  std::vector<bool> delayed_;  // Of the last run: what its device says of each delay.
  // Of the last run, as the checker saw them.
  std::int64_t launches_ = 0;
  std::map<int, std::vector<std::int64_t>> captured_calls_;
};

// As a shell reads it: quoted unless it is plain.
std::string shell_word(const std::string& text) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) || std::strchr("/._-+:,@%", c); };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

// A token knows the documents by a path that is relative to a file which it does not know.
std::string data_folder(const Scenario& scenario) {
  if (!reads_bytes(scenario.data) || std::filesystem::path(scenario.data.path).is_absolute()) return "";
  return (std::filesystem::current_path() / scenario.folder).lexically_normal().string();
}

}  // namespace

std::string replay_line(const Scenario& scenario, const std::string& token, const RunOptions& options) {
  std::string line = "lockstep replay " + token + " --device " + options.device;
  if (const std::string folder = data_folder(scenario); !folder.empty()) line += " --data-from " + shell_word(folder);
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
  result.data_from = data_folder(scenario);
  result.replay = replay_line(scenario, result.token, options);
  result.blind = blind_spots(scenario);
  return result;
}

CaseResult run_case_here(const Scenario& scenario, const RunOptions& options) { return Case(scenario, options).run(); }

}  // namespace lockstep
