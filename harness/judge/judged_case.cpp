#include "harness/judge/judged_case.h"

#include <new>

#include "engine/checkpoint/checkpoint.h"
#include "harness/case/nothing_planted.h"
#include "harness/case/schedules.h"
#include "harness/case/time_spent.h"
#include "harness/checker/redundant_edges.h"
#include "harness/costs/cost_counter.h"
#include "harness/expect/rank_counters.h"
#include "harness/explore/recorder.h"
#include "harness/judge/eager_judge.h"
#include "harness/judge/eager_reference.h"
#include "harness/judge/observer_list.h"
#include "harness/judge/run_progress.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

std::unique_ptr<Judge> make_judge(const JudgedCase& one) {
  const RunOptions& options = one.options;
  if (!is_judged_by_an_eager_run(one.scenario, options.device)) {
    return make_oracle_judge(one.scenario, options.planted.oracle);
  }
  return make_eager_judge(one.scenario, one.data, options.device,
                          options.ranks != nullptr ? options.ranks->gpu : 0);
}

const std::vector<oracle::Parameter> kNoParameters;  // For evaluations, which change none.

const ExpectedSteps::Judged& expected(ExpectedSteps& steps, std::int64_t step) {
  const TimeSpent::Part part("reference");
  return steps.step(step);
}

// Returns whether no rank has found anything.
bool observed_step(std::int64_t step, ExpectedSteps& steps, ComparedRun::Rank& rank,
                   const RunProgress& progress) {
  Trainer& trainer = rank.engine.trainer;
  progress.tell("reference", step);
  const ExpectedSteps::Judged& judged = expected(steps, step);
  progress.tell("engine", step);
  StepComparison& compared = rank.comparison.begin(
      rank.readback, {step, judged.documents, judged.want, steps.judge().parameters()});
  compared.finish_step(trainer.step(), Compared::every_pass);
  compared.compare_weights(steps.judge().parameters());
  compared.compare_biases(trainer.expert_biases(), steps.judge().expert_bias());
  if (!rank.holds_so_far()) return false;
  if (!trainer.evaluation_is_due()) return true;
  const ExpectedSteps::Judged& held_out = steps.evaluation(step);
  rank.comparison.begin(rank.readback, {step, held_out.documents, held_out.want, kNoParameters})
      .finish_evaluation(trainer.evaluate(), Compared::every_pass);
  return rank.holds_so_far();
}

// Runs all steps, reported to `told`, and counts. `costs` is closed where a rank's steps end.
void compare_results(const JudgedCase& one, const ReferenceResults& reference,
                     const SimOptions& sim, Observer* told, CostCounter& costs,
                     RunOutcome& outcome) {
  ComparedRun run(one.scenario, one.data, one.options, sim, Compared::result_only, told);
  const RunProgress progress(one.options, "unobserved run", one.scenario.training.steps);
  collect(outcome, run, [&] {
    run.on_ranks([&](ComparedRun::Rank& rank) {
      std::int64_t step = 0;
      while (step < one.scenario.training.steps &&
             unobserved_step(step, reference, rank, progress, &costs))
        ++step;
      costs.close(rank.engine.number());
      run.count(rank.engine);
      if (step == one.scenario.training.steps) compare_state(outcome, reference, rank);
    });
  });
  outcome.delayed = run.device().delayed();
  const std::int64_t stages = one.scenario.parallel.pipeline;
  outcome.counters = merged(run.counters(), one.ranks_are_processes(), stages);
  const std::string differ = disagreement(run.counters(), stages);
  if (outcome.holds() && !differ.empty())
    outcome.finding = {.judge = JudgeKind::vacuous, .reason = differ};
}

}  // namespace

bool unobserved_step(std::int64_t step, const ReferenceResults& reference, ComparedRun::Rank& rank,
                     const RunProgress& progress, CostCounter* costs) {
  static const StepData no_documents;
  progress.tell("engine", step);
  Trainer& trainer = rank.engine.trainer;
  rank.comparison
      .begin(rank.readback, {step, no_documents, at(reference.steps, step), reference.parameters})
      .finish_step(trainer.step(), Compared::result_only);
  const auto& evaluation = at(reference.evaluations, step);
  if (trainer.evaluation_is_due() && evaluation) {
    if (costs != nullptr) costs->enter_evaluation(rank.engine.number());
    rank.comparison.begin(rank.readback, {step, no_documents, *evaluation, kNoParameters})
        .finish_evaluation(trainer.evaluate(), Compared::result_only);
  }
  return rank.holds_so_far();
}

void compare_state(RunOutcome& outcome, const ReferenceResults& reference,
                   ComparedRun::Rank& rank) {
  StepComparison& last = rank.comparison.last();
  last.compare_weights(reference.parameters);
  last.compare_biases(rank.engine.trainer.expert_biases(), reference.expert_biases);
  if (rank.holds_so_far()) compare_digests(outcome, rank, reference.digest, reference.scaling);
}

SimOptions JudgedCase::simulator(std::int64_t seed) const {
  SimOptions sim = sim_options(scenario, seed);
  if (options.policy) sim.policy = *options.policy;
  if (watch != nullptr) {
    sim.copy_ran = [this](void* to, const void* from, std::size_t bytes) {
      watch->copied(to, from, bytes);
    };
    sim.op_ran = [this](const Submission& op, const StepLocation& place) { watch->ran(op, place); };
  }
  return sim;
}

RunFinding current_exception_as_finding() {
  const auto broken = [](JudgeKind judge, const char* reason) {
    return RunFinding{.verdict = Verdict::broken, .judge = judge, .reason = reason, .thrown = true};
  };
  try {
    throw;
  } catch (const HazardViolation& violation) {
    return {.judge = violation.judge(),
            .reason = violation.what(),
            .thrown = true,
            .hazards = violation.records()};
  } catch (const EngineViolation& violation) {
    return {.judge = violation.judge(), .reason = violation.what(), .thrown = true};
  } catch (const CheckpointRefused& refused) {
    return {.judge = JudgeKind::failed,
            .reason = std::string("what the run saved is refused: ") + refused.what(),
            .thrown = true};
  } catch (const CollectiveMismatch& mismatch) {
    return {.judge = JudgeKind::collective, .reason = mismatch.what(), .thrown = true};
  } catch (const CollectiveHang& hang) {
    return broken(JudgeKind::watchdog, hang.what());
  } catch (const DeviceError& error) {
    return broken(JudgeKind::device, error.what());
  } catch (const std::bad_alloc&) {
    return broken(JudgeKind::memory, "out of host memory");
  } catch (const std::exception& error) {
    return broken(JudgeKind::exception, error.what());
  }
}

RunOutcome outcome_of(const std::function<void(RunOutcome&)>& body) {
  RunOutcome outcome;
  try {
    body(outcome);
  } catch (const std::exception&) {
    outcome.finding = current_exception_as_finding();
  }
  return outcome;
}

void collect(RunOutcome& outcome, ComparedRun& run, const std::function<void()>& body) {
  const auto take_difference = [&] {
    outcome.triggered += run.triggered();
    const std::optional<Difference> first = run.first();
    if (first)
      outcome.finding = {.judge = first->judge, .reason = first->reason, .where = first->where};
    if (!first && run.differs()) {
      outcome.finding = {.judge = JudgeKind::remote_failure,
                         .reason = "another rank has found a difference"};
    }
    return first.has_value();
  };
  try {
    body();
  } catch (const std::exception&) {
    if (!take_difference()) throw;
    return;
  }
  take_difference();
}

void compare_digests(RunOutcome& outcome, const ComparedRun::Rank& rank, const std::string& weights,
                     const std::string& scaling) {
  const auto compare = [&](const char* of, const std::string& got, const std::string& want) {
    if (got == want) return;
    outcome.finding = {.judge = JudgeKind::weights,
                       .reason = "the " + std::string(of) + " digest of rank " +
                                 std::to_string(rank.engine.number()) + " is " + got +
                                 ", the oracle's " + want};
  };
  compare("scaling", rank.run.scaling_digest(rank.engine.trainer), scaling);
  compare("weight", rank.run.digest(rank.engine.trainer), weights);
}

// Bits that differ may do so only since a look came too early: the race is the finding.
static bool is_of_looks(const RunOutcome& outcome, const Checker& checker) {
  return outcome.finding && outcome.finding->where && checker.looked_too_early();
}

RunOutcome reference_run(const JudgedCase& one, std::int64_t seed) {
  return outcome_of([&](RunOutcome& outcome) {
    const Scenario plain = eager(one.scenario);
    RunOptions sound = one.options;
    sound.planted.engine.clear();
    Checker checker(one.checker_options());
    ReferenceResults& results = outcome.reference.emplace();
    {
      const NothingPlanted nothing_planted;
      ComparedRun run(plain, one.data, sound, one.simulator(seed), Compared::result_only,
                      one.observer(checker));
      outcome.device = run.device().info();
      collect(outcome, run, [&] {
        const RunProgress progress(sound, "eager run", plain.training.steps);
        run.on_ranks([&](ComparedRun::Rank& rank) {
          EagerReference reference(plain, rank);
          for (std::int64_t step = 0; step < plain.training.steps; ++step) {
            progress.tell("engine", step);
            reference.step();
            if (rank.engine.trainer.evaluation_is_due()) reference.evaluate();
          }
          std::move(reference).remember(results);
        });
      });
    }
    if (!outcome.holds()) return;
    checker.throw_found();
    if (is_judged_by_an_eager_run(one.scenario, one.options.device)) return;
    const std::string differ = first_losses_differ(one.scenario, one.data, results);
    if (!differ.empty()) outcome.finding = {.judge = JudgeKind::loss, .reason = differ};
  });
}

RunOutcome observed_run(const JudgedCase& one, std::int64_t seed) {
  return outcome_of([&](RunOutcome& outcome) {
    ExpectedSteps steps(one.data, make_judge(one));
    Checker checker(one.checker_options());
    {
      ComparedRun run(one.scenario, one.data, one.options, one.simulator(seed),
                      Compared::every_pass, one.observer(checker));
      const RunProgress progress(one.options, "observed run", one.scenario.training.steps);
      run.set_watch(one.watch);
      outcome.device = run.device().info();
      collect(outcome, run, [&] {
        run.on_ranks([&](ComparedRun::Rank& rank) {
          std::int64_t step = 0;
          while (step < one.scenario.training.steps && observed_step(step, steps, rank, progress))
            ++step;
          if (step == one.scenario.training.steps)
            compare_digests(outcome, rank, steps.judge().weight_digest(),
                            steps.judge().scaling_digest());
        });
        outcome.reference = std::move(steps).remember();
      });
    }
    // After a run that stopped early a hazard is no finding of its own, unless it made what was
    // looked at worthless.
    if (outcome.holds() || is_of_looks(outcome, checker)) checker.throw_found();
  });
}

static void add_overlap(Costs& costs, const NeededOrder& order) {
  const auto add = [&](const char* name, std::int64_t most) {
    if (most > 0) costs["overlap"][name] = most;
  };
  add("copies_out_at_once", order.most_copies());
  add("gathers_at_once", order.most_gathers());
}

RunOutcome unobserved_run(const JudgedCase& one, const ReferenceResults& reference,
                          const SimOptions& sim, bool is_first) {
  return outcome_of([&](RunOutcome& outcome) {
    NeededOrder needed(declared_order(one.scenario)), asked_for(declared_order(one.scenario));
    const bool judges_order = is_first && one.judges_order();
    const bool takes_turns = judges_order && one.ranks_take_turns_in_graphs();
    Checker checker(one.checker_options(judges_order ? &needed : nullptr));
    Checker without_turns({.stop = false,
                           .mutation = "",
                           .dropped = {},
                           .needed = &asked_for,
                           .without_turns = true});
    CallLog log(checker);
    const bool logs = one.options.edges && one.scenario.checker.hazards && is_first;
    Observer* judge = logs ? static_cast<Observer*>(&log) : one.observer(checker);
    ProgramRecorder recorder;
    CostCounter costs;
    const bool records = is_first && one.options.device == "sim";
    std::vector<Observer*> told;
    if (judge != nullptr) told.push_back(judge);
    if (takes_turns) told.push_back(&without_turns);
    if (records) told.push_back(&recorder);
    if (is_first && one.counts_costs()) told.push_back(&costs);
    ObserverList list(told);
    compare_results(one, reference, sim, told.empty() ? nullptr : &list, costs, outcome);
    if (is_first && one.counts_costs()) {
      outcome.costs = costs.costs();
      outcome.step_memory = costs.step_memory();
      outcome.recomputed = costs.recomputed();
      // Processes exchange through memory that they share, which is not pinned.
      if (!one.ranks_are_processes()) outcome.pageable = costs.pageable_copies();
    }
    if (outcome.holds() || is_of_looks(outcome, checker)) checker.throw_found();
    if (judges_order && outcome.holds()) {
      outcome.needless = (takes_turns ? asked_for : needed).finding();
      add_overlap(*outcome.costs, needed);
    }
    if (logs && outcome.holds()) outcome.redundant_edges = redundant_edges(log);
    (*outcome.counters)[Counter::hazards_checked] = checker.checked();
    outcome.launches = checker.launches();
    outcome.captured_calls = checker.captured_calls();
    if (records) outcome.program = std::move(recorder).finish();
  });
}

}  // namespace lockstep
