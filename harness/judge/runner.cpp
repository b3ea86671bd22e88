#include "harness/judge/runner.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>

#include "harness/base/shell_word.h"
#include "harness/case/schedules.h"
#include "harness/expect/blind_spots.h"
#include "harness/expect/expectations.h"
#include "harness/expect/graph_memory.h"
#include "harness/expect/recomputed_ops.h"
#include "harness/expect/run_expectations.h"
#include "harness/expect/vacuity.h"
#include "harness/inject/device_fault.h"
#include "harness/inject/document_fault.h"
#include "harness/judge/judged_case.h"
#include "harness/judge/schedule_exploration.h"
#include "harness/recount/recount.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "scenarios/documents/layout.h"
#include "scenarios/io/reader.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// Schedules that run with their arithmetic; the others run by tags alone.
constexpr std::int64_t kWithArithmetic = 8;
// Returns a finding if the run did not count what the scenario implies and its `expect.counters`
// ask for. `first` is the unobserved run that counted costs, if one did; `last` is the last.
std::optional<RunFinding> judge_counters(const JudgedCase& one, const ReferenceResults& results,
                                         const std::optional<RunOutcome>& first,
                                         const RunOutcome& last, const Counters& counters) {
  RunEvidence evidence{.explored = one.explores()};
  if (one.has_step_judge()) evidence.oracle_steps = results.steps;
  const auto* const here = one.options.ranks;
  const std::int64_t ranks = here != nullptr ? here->here() : ranks_of_run(one.scenario);
  if (one.checks_hazards()) evidence.checker = {ranks, last.launches, last.captured_calls};
  const std::vector<Expectation> expected = expectations_of_run(one.scenario, one.data, evidence);
  const auto vacuous = [](const std::string& reason) {
    return RunFinding{.judge = JudgeKind::vacuous, .reason = reason};
  };
  if (!some_step_has_a_target(one.scenario, one.data))
    return vacuous("no step has a target: every loss is zero");
  const std::string unmet_here = unmet(expected, counters);
  const bool of_recompute = unmet_here.starts_with(to_text(Counter::ops_recomputed));
  const std::string op =
      of_recompute && first ? recomputed_otherwise(one.scenario, ranks, first->recomputed) : "";
  if (!unmet_here.empty()) return vacuous(unmet_here + (op.empty() ? "" : "; " + op));
  const std::int64_t first_rank = here != nullptr ? here->first() : 0;
  const std::string idle = idle_delay(one.scenario, last.delayed, {first_rank, ranks});
  if (!idle.empty()) return vacuous(idle);
  const std::string rule = unmet(one.scenario.expect.counters, counters);
  if (!rule.empty()) return RunFinding{.judge = JudgeKind::counters, .reason = rule};
  return {};
}

// Returns a finding if the first run asked for other work than the scenario's row in costs.txt, for
// ever more memory, or kept other graphs than the documents ask for.
std::optional<RunFinding> judge_costs(const JudgedCase& one, const RunOutcome& first) {
  const auto finding = [](const std::string& reason) {
    return RunFinding{.judge = JudgeKind::costs, .reason = reason};
  };
  const std::string growth = memory_growth(one.scenario, first.step_memory);
  if (!growth.empty()) return finding(growth);
  if (!first.pageable.empty()) return finding(first.pageable);
  const auto* const here = one.options.ranks;
  // A process sees its own stage alone.
  const std::int64_t ranks = here != nullptr ? here->here() : ranks_of_run(one.scenario),
                     stages = one.scenario.parallel.pipeline;
  const std::string graphs =
      stages > 1 && ranks < ranks_of_run(one.scenario)
          ? ""
          : unexpected_graphs(one.scenario, one.data, ranks / stages, first.step_memory.graphs,
                              first.captured_calls);
  if (!graphs.empty()) return finding(graphs);
  if (!first.needless.empty()) return finding(first.needless);
  // Rows hold the costs of all ranks, or of rank 0 where each is a process.
  if (one.ranks_are_processes() && one.options.ranks->first() > 0) return {};
  const std::string digest = cost_digest(one.scenario);
  for (const CostRow& row : cost_rows_in(one.scenario.folder)) {
    if (row.digest != digest || row.numerics != to_text(one.scenario.numerics.front())) continue;
    const std::string differs = difference(*first.costs, row.costs);
    if (!differs.empty())
      return finding(differs +
                     "; if that is meant: lockstep verify --device sim --update-costs FILE");
  }
  return {};
}

// Returns a sentence if the folder's costs.txt has rows, and none of this form of the scenario: the
// judge of costs compared nothing then. "" for folders without rows.
std::string uncompared_costs(const Scenario& scenario) {
  const std::vector<CostRow> rows = cost_rows_in(scenario.folder);
  const std::string digest = cost_digest(scenario), numerics = to_text(scenario.numerics.front());
  bool is_there = false;
  for (const CostRow& row : rows) {
    if (row.numerics == numerics && row.digest == digest) return "";
    is_there = is_there || (row.name == scenario.name && row.numerics == numerics);
  }
  if (rows.empty()) return "";
  return "costs are not compared: " +
         std::string(is_there ? "the scenario was edited since its row was written to "
                              : "the scenario has no row in ") +
         cost_file(scenario.folder) +
         "; lockstep verify --device sim --update-costs FILE writes one";
}

// Returns a finding if engine and oracle were given other documents than the scenario means.
std::optional<RunFinding> judge_documents(const JudgedCase& one) {
  // Processes open the same source, so one of them looks at it for all.
  if (one.ranks_are_processes() && one.options.ranks->first() > 0) return {};
  const recount::Recount recount(one.scenario);
  const auto judged = [&](const char* phase, std::int64_t step, const StepData& want,
                          const StepData& got) -> std::optional<RunFinding> {
    const std::string differs = recount::difference(one.scenario, want, got);
    if (differs.empty()) return {};
    return RunFinding{.judge = JudgeKind::documents,
                      .reason = phase + std::to_string(step) + ", " + differs};
  };
  const std::int64_t every = one.scenario.training.eval_every;
  for (std::int64_t step = 0; step < one.scenario.training.steps; ++step) {
    auto found = judged("step ", step, recount.training(step), one.data.training(step));
    if (!found && every > 0 && (step + 1) % every == 0) {
      found = judged("evaluation after step ", step, recount.evaluation(step),
                     one.data.evaluation(step));
    }
    if (found) return found;
  }
  return {};
}

class Case {
 public:
  Case(const Scenario& scenario, const RunOptions& options)
      : scenario_(scenario), options_(options), result_(unjudged_case(scenario, options)) {}

  CaseResult run() {
    const auto start = std::chrono::steady_clock::now();
    const std::int64_t met_before = fault_points_met();
    try {
      data_ = open_planted_data(scenario_);
      judge({scenario_, options_, *data_});
    } catch (const std::exception&) {
      apply(current_exception_as_finding());
    }
    if (device_fault(options_.planted.engine))
      result_.counters[Counter::door_faults_struck] = triggered_;
    if (!options_.planted.engine.empty())
      result_.counters[Counter::planted_fault_met] =
          triggered_ + fault_points_met() - met_before - met_again_;
    result_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!holds()) {  // The token names the schedule that failed.
      result_.token = make_token(narrowed(scenario_, scenario_.numerics.front(), seed_));
      result_.replay = replay_line(scenario_, result_.token, options_);
    }
    return std::move(result_);
  }

 private:
  void judge(const JudgedCase& one) {
    const Scenario::Checker::Schedule& schedule = scenario_.checker.schedule;
    const std::int64_t most = one.explores() ? kWithArithmetic : schedule.count;
    const std::int64_t count = options_.device == "sim" ? std::min(schedule.count, most) : 1;
    seed_ = schedule.seed;
    RunOutcome reference =
        one.has_step_judge() ? observed_run(one, seed_) : reference_run(one, seed_);
    apply(reference);
    if (!holds())
      return name_op(one, [&](const JudgedCase& again) { return observed_run(again, seed_); });
    ReferenceResults results = std::move(*reference.reference);
    for (std::int64_t i = 0; i < count && holds(); ++i) {
      seed_ = (schedule.seed + i) & kMostSeed;
      last_ = unobserved_run(one, results, one.simulator(seed_), is_first(one.simulator(seed_)));
      apply(last_);
      if (last_.program) program_ = std::move(*last_.program);
      if (last_.costs) first_ = last_;
      if (!holds() && (result_.first_difference || result_.judge == JudgeKind::remote_failure))
        name_better(one, results);
    }
    if (holds() && one.explores()) explore_schedules(one, results);
    if (holds() && !scenario_.training.resume_at.empty()) resume(one, results);
    if (!holds()) return;
    const std::string same = ranks_with_the_same_documents(scenario_, *data_);
    const bool trains = some_step_has_a_target(scenario_, *data_);
    if (trains && !same.empty()) result_.blind.push_back(same);
    const auto finding = judge_counters(one, results, first_, last_, result_.counters);
    if (finding) return apply(*finding);
    const auto documents = one.options.bits_alone ? std::nullopt : judge_documents(one);
    if (documents) return apply(*documents);
    if (!first_) return;
    result_.costs = *first_->costs;
    if (!options_.costs) return;
    if (const auto cost = judge_costs(one, *first_)) return apply(*cost);
    const std::string uncompared = uncompared_costs(scenario_);
    const bool is_told = std::ranges::find(result_.blind, uncompared) != result_.blind.end();
    if (!uncompared.empty() && !is_told) result_.blind.push_back(uncompared);
  }

  bool is_first(const SimOptions& sim) const {
    return seed_ == scenario_.checker.schedule.seed && sim.policy != SimOptions::Policy::given;
  }

  // The difference was found in an unobserved run. An observed run of the same schedule may name an
  // earlier tensor.
  void name_better(const JudgedCase& one, const ReferenceResults& results) {
    if (!one.has_step_judge()) return;
    const RunOutcome observed = observed_run(one, seed_);
    if (!observed.holds()) {
      apply(observed);
      return name_op(one, [&](const JudgedCase& again) { return observed_run(again, seed_); });
    }
    triggered_ += observed.triggered;
    result_.reason += "; seen only when nobody looks at the device between passes";
    name_op(one, [&](const JudgedCase& again) {
      return unobserved_run(again, results, again.simulator(seed_), false);
    });
  }

  // Makes the run that has just differed once more, in which every op is compared when it has run.
  // A process sees its own ranks alone.
  void name_op(const JudgedCase& one, const std::function<RunOutcome(const JudgedCase&)>& run) {
    const bool is_watched = options_.names_op && options_.device == "sim" && one.has_step_judge() &&
                            !one.ranks_are_processes();
    // The metadata of a pack are what one op wrote, or of a size that it was given.
    const bool is_named = result_.judge == JudgeKind::metadata;
    // Nobody wrote what the harness looked at when the pass was over: an op may have been left out,
    // or another one been wrong about which rows are in use.
    const bool lacks_a_write = result_.judge == JudgeKind::hazard &&
                               result_.reason.starts_with("use before write") &&
                               result_.reason.find("(look, ") != std::string::npos;
    if ((!result_.first_difference && !lacks_a_write) || is_named || !is_watched) return;
    const std::int64_t met_before = fault_points_met();
    OpWatch watch(scenario_, *data_, options_.planted.oracle);
    JudgedCase again = one;
    again.watch = &watch;
    const RunOutcome watched = run(again);
    met_again_ += fault_points_met() - met_before;
    if (lacks_a_write) {
      result_.wrong_op = watch.left_out() ? watch.left_out() : watch.first();
      return;
    }
    result_.wrong_op = watch.first() ? *watch.first() : watch.left_out().value_or(WrongOp());
    const bool is_right = result_.wrong_op->op.empty() && watched.finding && watched.finding->where;
    if (is_right && !watched.finding->where->writers.empty())
      result_.wrong_op->inputs = {
          {watched.finding->where->tensor, watched.finding->where->writers}};
  }

  void resume(const JudgedCase& one, const ReferenceResults& results) {
    seed_ = scenario_.checker.schedule.seed;
    const RunOutcome resumed = resumed_run(one, results, one.simulator(seed_));
    apply(resumed);
    result_.counters[Counter::resumes] = resumed.resumes;
    if (holds()) return;
    result_.reason += "; seen only in the run that is saved and loaded on its way";
    name_op(one, [&](const JudgedCase& again) {
      return resumed_run(again, results, again.simulator(seed_));
    });
  }

  void explore_schedules(const JudgedCase& one, const ReferenceResults& results) {
    if (options_.progress) options_.progress("other schedules, by tags");
    ScheduleExploration exploration(one, results, program_);
    result_.schedules = exploration.bound();
    result_.counters[Counter::schedules_explored] = exploration.schedules();
    while (holds()) {
      std::optional<RunOutcome> outcome = exploration.next();
      if (!outcome) return;
      seed_ = exploration.seed().value_or(seed_);
      last_ = std::move(*outcome);
      apply(last_);
    }
  }

  void apply(const RunOutcome& outcome) {
    triggered_ += outcome.triggered;
    if (outcome.device) result_.device = *outcome.device;
    if (outcome.counters) result_.counters = *outcome.counters;
    if (!outcome.redundant_edges.empty()) result_.redundant_edges = outcome.redundant_edges;
    if (outcome.finding) apply(*outcome.finding);
  }
  void apply(const RunFinding& finding) {
    result_.verdict = finding.verdict;
    result_.judge = finding.judge;
    result_.reason = finding.reason;
    result_.hazards = finding.hazards;
    if (finding.verdict == Verdict::violated) result_.first_difference = finding.where;
  }
  bool holds() const { return result_.verdict == Verdict::holds; }

  const Scenario& scenario_;
  const RunOptions& options_;
  std::unique_ptr<DataSource> data_;
  CaseResult result_;
  Program program_;                  // What the first unobserved run put on its streams.
  RunOutcome last_;                  // The last unobserved run.
  std::optional<RunOutcome> first_;  // The first one, which counted costs.
  std::int64_t seed_ = 0;
  std::int64_t met_again_ = 0;  // Fault points met in the run that names the op.
  std::int64_t triggered_ = 0;  // How often the planted device fault took effect, in all runs.
};

// A token stores the path of the documents, but not the scenario file to which it is relative.
std::string data_folder(const Scenario& scenario) {
  if (!reads_bytes(scenario.data) || std::filesystem::path(scenario.data.path).is_absolute())
    return "";
  return (std::filesystem::current_path() / scenario.folder).lexically_normal().string();
}

}  // namespace

std::string replay_line(const Scenario& scenario, const std::string& token,
                        const RunOptions& options) {
  std::string line = "lockstep replay " + token + " --device " + options.device;
  if (const std::string folder = data_folder(scenario); !folder.empty())
    line += " --data-from " + shell_word(folder);
  if (!options.planted.engine.empty()) line += " --plant " + options.planted.engine;
  if (!options.planted.oracle.empty()) line += " --mutate-oracle " + options.planted.oracle;
  if (!options.planted.checker.empty()) line += " --mutate-checker " + options.planted.checker;
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

CaseResult judge_case(const Scenario& scenario, const RunOptions& options) {
  return Case(scenario, options).run();
}

}  // namespace lockstep
