// The parts of `lockstep mutate`: names of faults, what is enumerated, how a mutant is evaluated,
// what is counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine/train/trainer.h"
#include "harness/base/subprocess.h"
#include "harness/case/schedules.h"
#include "harness/mutate/named.h"
#include "harness/mutate/report.h"
#include "harness/mutate/systematic.h"
#include "harness/run/worker.h"
#include "tests/support/patience.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Twenty have no call for one of the operators.
const std::vector<MutationCase>& small_cases() {
  static const std::vector<MutationCase> cases = mutation_cases(40);
  return cases;
}

std::set<std::string> names_of(const std::vector<Fault>& faults) {
  std::set<std::string> names;
  for (const Fault& fault : faults) names.insert(fault.name);
  return names;
}

// One that offloads between graphs is among them: there most calls lie behind launches and their
// dry runs.
const std::vector<MutationCase>& cases_with_graphs() {
  static const std::vector<MutationCase> cases = [] {
    std::vector<MutationCase> some = mutation_cases(40);
    std::erase_if(some, [](const MutationCase& one) {
      return one.program ||
             (one.scenario.name != "offload-whole-layers" && one.scenario.name != "moe-ties" &&
              one.scenario.name != "evaluation-between-steps");
    });
    return some;
  }();
  return cases;
}

// How often the fault strikes when its smallest case runs in this process, as it is judged: with
// dry runs.
int strikes_here(const Fault& fault) {
  const MutationCase& at = cases_with_graphs()[static_cast<std::size_t>(fault.cases.front())];
  const auto data = open_data(at.scenario);
  DeviceMutator mutator(at.scenario.model.pattern, device_fault(fault.name));
  SimOptions sim = sim_options(at.scenario, 1);
  sim.policy = SimOptions::Policy::program;
  try {
    Device device(open_sim(sim), nullptr, pressure_of(at.scenario), &mutator);
    Trainer trainer(device, at.scenario, *data);
    for (std::int64_t step = 0; step < at.scenario.training.steps; ++step) {
      trainer.step();
      if (trainer.evaluation_is_due()) trainer.evaluate();
    }
    trainer.weight_digest();
  } catch (const std::exception&) {  // The fault was one that the device refuses.
  }
  return static_cast<int>(mutator.triggered());
}

CaseResult result_of(Verdict verdict, JudgeKind judge = JudgeKind::none,
                     const std::string& reason = "") {
  CaseResult result;
  result.verdict = verdict;
  result.judge = judge;
  result.reason = reason;
  result.replay = "lockstep replay";
  return result;
}

// A fault that two scenarios and no fixture program may show.
Fault two_cases() {
  return {.name = "some-fault",
          .kind = Fault::Kind::named,
          .bug_class = "test",
          .site = "here",
          .reasons = {{JudgeKind::hazard, {"loader"}}, {std::nullopt, {}}},
          .plant = {},
          .removes_order = true,
          .cases = {0, 1}};
}

// The same, in a process of its own: without a fault no run dies, so one that died was struck.
int strikes(const Fault& fault) {
  const ChildEnd end =
      run_in_child([&] { return std::to_string(strikes_here(fault)); }, 60 * patience());
  return end.finished ? std::stoi(end.output) : 1;
}

TEST(DeviceFaults, AreNamedSoThatTheyAreFoundAgain) {
  const std::string name = "drop-wait/eager/compute/wait-for-loader/2";
  const auto fault = device_fault(name);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->op, DeviceOperator::drop_wait);
  EXPECT_EQ(fault->site, "eager/compute/wait-for-loader");
  EXPECT_EQ(fault->index, 2);
  EXPECT_EQ(to_text(*fault), name);
  for (const char* none : {"", "rms-norm-forgets-eps", "drop-wait", "drop-wait/2", "drop-wait/a/",
                           "drop-wait/a/-1", "drop-wait/a/2x", "drop-everything/a/0"}) {
    EXPECT_FALSE(device_fault(none)) << none;
  }
}

TEST(SystematicFaults, AreTheSameForASeedAndCoverEveryOperator) {
  const auto faults = systematic_faults(small_cases(), 1, 12);
  std::set<std::string> operators;
  for (const Fault& fault : faults) {
    operators.insert(fault.bug_class);
    EXPECT_FALSE(fault.cases.empty()) << fault.name;
    EXPECT_FALSE(fault.reasons.empty()) << fault.name;
  }
  EXPECT_EQ(operators.size(), kDeviceOperators.size());
  EXPECT_GE(faults.size(), 10 * kDeviceOperators.size());  // A small run has few fills.
  EXPECT_EQ(names_of(faults).size(), faults.size());
  EXPECT_EQ(names_of(systematic_faults(small_cases(), 1, 12)), names_of(faults));
  EXPECT_NE(names_of(systematic_faults(small_cases(), 2, 12)), names_of(faults));
}

TEST(SystematicFaults, AreFoundByName) {
  const Fault fault = systematic_faults(small_cases(), 1, 1).front();
  const auto again = systematic_fault(small_cases(), fault.name);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->cases, fault.cases);
  EXPECT_FALSE(systematic_fault(small_cases(), "drop-wait/nowhere/0"));
}

RC_GTEST_PROP(SystematicFaults, StrikeExactlyOnce, ()) {
  static const std::vector<Fault> faults = systematic_faults(cases_with_graphs(), 3, 64);
  const Fault& fault = faults[*rc::gen::inRange<std::size_t>(0, faults.size())];
  RC_LOG() << fault.name;
  RC_ASSERT(strikes(fault) == 1);
}

TEST(NamedFaults, EachHasAClassAPlaceAndReasons) {
  const auto faults = named_faults(small_cases());
  EXPECT_GE(faults.size(), 60u);
  EXPECT_EQ(names_of(faults).size(), faults.size());
  for (const Fault& fault : faults) {
    EXPECT_FALSE(fault.bug_class.empty()) << fault.name;
    EXPECT_FALSE(fault.site.empty()) << fault.name;
    EXPECT_FALSE(fault.reasons.empty()) << fault.name;
  }
}

// A stream that has not joined a capture may have no external event: of edges of captures, and of
// nothing else, such a refusal is the right report.
TEST(Reasons, OnlyEdgesOfCapturesAreRefusedOutsideOne) {
  MutationCase one{.scenario = {}, .sites = {}, .last_launches = {}};
  for (DeviceMutator::Sites& sites : one.sites)
    sites = {{"captured/d2h/some-call", 1}, {"eager/d2h/some-call", 1}};
  const auto faults = systematic_faults({one}, 1, 2);
  ASSERT_EQ(faults.size(), 2 * kDeviceOperators.size());
  const std::set<std::string> edges{"drop-wait", "drop-record", "move-wait", "move-record"};
  for (const Fault& fault : faults) {
    const bool edge = edges.contains(fault.bug_class) && fault.site.starts_with("captured/");
    for (const char* call : {"wait", "record"}) {
      const std::string refused = "forward graph of region 0: external " + std::string(call) +
                                  " outside a capture: cudaErrorIllegalState";
      EXPECT_EQ(is_right_reason(fault, result_of(Verdict::violated, JudgeKind::capture, refused)),
                edge)
          << fault.name;
    }
    EXPECT_FALSE(is_right_reason(
        fault, result_of(Verdict::violated, JudgeKind::capture, "call outside a capture")))
        << fault.name;
  }
}

// pack.cu_seqlens is compared bit by bit as any tensor is.
TEST(Reasons, MetadataOfAPackAreValues) {
  EXPECT_TRUE(is_bit_judge(JudgeKind::metadata));
  EXPECT_FALSE(is_bit_judge(JudgeKind::hazard) || is_bit_judge(JudgeKind::vacuous));
  const Fault fault = two_cases();
  const std::string reason = "pack.cu_seqlens differs from the oracle's";
  EXPECT_TRUE(is_right_reason(fault, result_of(Verdict::violated, JudgeKind::metadata, reason)));
  MutantEvaluation trial(0, fault, small_cases());
  trial.take(result_of(Verdict::violated, JudgeKind::metadata, reason));
  trial.take(result_of(Verdict::violated, JudgeKind::metadata, reason));
  EXPECT_TRUE(trial.outcome().killed && trial.outcome().bits && trial.outcome().done);
}

TEST(Reasons, AnEvaluationMayNameTheTensorThatItIsFirstToMakeWrong) {
  const auto faults = named_faults(small_cases());
  const auto named = [&](const char* name, const char* tensor) {
    const auto fault = std::find_if(faults.begin(), faults.end(),
                                    [&](const Fault& one) { return one.name == name; });
    return fault != faults.end() &&
           is_right_reason(*fault, result_of(Verdict::violated, JudgeKind::evaluation, tensor));
  };
  EXPECT_TRUE(named("scan-long-time-steps-are-linear", "layers.3.scan differs"));
  EXPECT_TRUE(named("activation-gate-saturates", "layers.2.act differs"));
  EXPECT_FALSE(named("scan-long-time-steps-are-linear", "layers.2.act differs"));
  EXPECT_FALSE(named("activation-gate-saturates", "loss differs"));
  EXPECT_FALSE(named("scan-forgets-dt-bias", "layers.3.scan differs"));
}

TEST(Trials, StopAtTheFirstKillAndSayWhatWouldHaveDone) {
  const Fault fault = two_cases();
  MutantEvaluation trial(0, fault, small_cases());
  trial.take(result_of(Verdict::holds));
  ASSERT_EQ(trial.next()->at, 1);
  trial.take(result_of(Verdict::violated, JudgeKind::hazard, "Missing edge: loader -> compute"));
  ASSERT_EQ(trial.next()->mode, EvaluationMode::plain);
  trial.take(result_of(Verdict::holds));
  ASSERT_EQ(trial.next()->mode, EvaluationMode::poison);
  MutantEvaluation poisoned = trial;
  poisoned.take(result_of(Verdict::violated, JudgeKind::loss));
  EXPECT_TRUE(poisoned.outcome().done && poisoned.outcome().bits);
  EXPECT_EQ(poisoned.outcome().amplifier, "poison");
  trial.take(result_of(Verdict::holds));
  ASSERT_EQ(trial.next()->mode, EvaluationMode::delay);
  trial.take(result_of(Verdict::violated, JudgeKind::loss));
  EXPECT_FALSE(trial.next());
  const EvaluationOutcome& outcome = trial.outcome();
  EXPECT_TRUE(outcome.killed && outcome.bits && outcome.done);
  EXPECT_EQ(outcome.judge, JudgeKind::hazard);
  EXPECT_EQ(outcome.amplifier, "delay");
  EXPECT_EQ(outcome.scenarios, 2);
}

TEST(Trials, DoNotCountAKillForAnotherReason) {
  const Fault fault = two_cases();
  MutantEvaluation trial(0, fault, small_cases());
  for (int i = 0; i < 2; ++i)
    trial.take(result_of(Verdict::violated, JudgeKind::hazard, "something else"));
  EXPECT_TRUE(trial.outcome().done && trial.outcome().wrong_reason);
  EXPECT_FALSE(trial.outcome().killed || trial.outcome().equivalent);
  EXPECT_THAT(survivors_text({fault}, {trial.outcome()}),
              HasSubstr("named for another reason, by hazard: something else"));
}

TEST(Trials, ProveWhatNobodyNotices) {
  const Fault fault = two_cases();
  MutantEvaluation silent(0, fault, small_cases());
  for (int i = 0; i < 2; ++i) silent.take(result_of(Verdict::holds));
  ASSERT_EQ(silent.next()->mode, EvaluationMode::prove);
  MutantEvaluation found = silent;
  silent.take(result_of(Verdict::holds));
  EXPECT_TRUE(silent.outcome().equivalent && silent.outcome().done);
  EXPECT_THAT(silent.outcome().argument, HasSubstr("1000 orders"));
  found.take(result_of(Verdict::violated, JudgeKind::loss));
  EXPECT_TRUE(found.outcome().killed);
  EXPECT_FALSE(found.outcome().equivalent);
}

// It would have held, and looked like one that changes nothing.
TEST(Trials, ACallThatWasNeverMetProvesNothing) {
  Fault fault = two_cases();
  fault.kind = Fault::Kind::systematic;
  MutantEvaluation trial(0, fault, small_cases()), met = trial;
  for (int i = 0; i < 2; ++i) trial.take(result_of(Verdict::holds));
  EXPECT_TRUE(trial.outcome().done);
  EXPECT_FALSE(trial.outcome().killed || trial.outcome().equivalent);
  EXPECT_THAT(survivors_text({fault}, {trial.outcome()}), HasSubstr("the call was never met"));
  CaseResult struck = result_of(Verdict::holds);
  struck.counters[Counter::door_faults_struck] = 1;
  met.take(result_of(Verdict::holds));
  met.take(struck);
  ASSERT_EQ(met.next()->mode, EvaluationMode::prove);
  met.take(struck);
  EXPECT_TRUE(met.outcome().equivalent);
  EXPECT_THAT(met.outcome().argument, HasSubstr("in 1 cases"));
}

TEST(Score, CountsEachFaultOnce) {
  const std::vector<Fault> faults(4, two_cases());
  std::vector<MutantEvaluation> trials;
  for (int i = 0; i < 4; ++i)
    trials.emplace_back(i, faults[static_cast<std::size_t>(i)], small_cases());
  trials[0].take(result_of(Verdict::violated, JudgeKind::loss));
  trials[0].take(result_of(Verdict::violated, JudgeKind::loss));
  trials[1].take(result_of(Verdict::violated, JudgeKind::hazard, "loader"));
  for (int i = 0; i < 3; ++i) trials[1].take(result_of(Verdict::holds));
  for (int i = 0; i < 3; ++i) trials[2].take(result_of(Verdict::holds));
  std::vector<EvaluationOutcome> outcomes;
  for (const MutantEvaluation& trial : trials) outcomes.push_back(trial.outcome());
  const MutationScore sum = score(faults, outcomes, Fault::Kind::named);
  EXPECT_EQ(sum.faults, 3);
  EXPECT_EQ(sum.unfinished, 1);
  EXPECT_EQ(sum.bits, 1);
  EXPECT_EQ(sum.judges, 1);
  EXPECT_EQ(sum.equivalent, 1);
  EXPECT_EQ(sum.survived, 0);
  EXPECT_THAT(score_text(faults, outcomes),
              HasSubstr("named: 2 of 2 killed (100.0 %), 1 proven equivalent, 1 not run"));
  // There is no share of nothing.
  const std::vector<EvaluationOutcome> none(1);
  EXPECT_THAT(score_text({faults.front()}, none),
              HasSubstr("named: 0 of 0 killed, 0 proven equivalent, 1 not run"));
  EXPECT_THAT(score_text({}, {}), HasSubstr("no fault was tried"));
}

TEST(Score, AFewFaultsAreToldWithWhatKilledThem) {
  const std::vector<Fault> faults(1, two_cases());
  EvaluationOutcome outcome;
  outcome.done = outcome.killed = true;
  outcome.judge = JudgeKind::hazard;
  outcome.killer = "some-scenario fp32";
  EXPECT_EQ(killers_text(faults, {outcome}),
            "some-fault: killed by hazard in some-scenario fp32\n");
  EXPECT_EQ(killers_text(std::vector<Fault>(21, two_cases()),
                         std::vector<EvaluationOutcome>(21, outcome)),
            "");
}

TEST(MutateCommand, SaysWhatToDoForANameThatItDoesNotKnow) {
  const Ran misspelled = run_lockstep("mutate --scenarios 1 --only rms-norm-forgets-epz");
  EXPECT_EQ(misspelled.status, 2);
  EXPECT_THAT(misspelled.err,
              testing::AllOf(HasSubstr("nearest: rms-norm-forgets-eps"),
                             HasSubstr("A new one takes a row in a table of faults")));
  const Ran unseen =
      run_lockstep("mutate --scenarios 1 --only checkpoint-overwrites-the-valid-one");
  EXPECT_EQ(unseen.status, 2);
  EXPECT_THAT(unseen.err, HasSubstr("no scenario shows this fault"));
}

// ---- The command --------------------------------------------------------------------------------

boost::json::value mutated(const TemporaryFolder& folder, const std::string& words, int status) {
  const Ran ran = run_lockstep("mutate --quiet " + words + " --json " + (folder / "m.json"));
  EXPECT_EQ(ran.status, status) << ran.out << ran.err;
  return boost::json::parse(slurp(folder / "m.json"));
}

TEST(MutateCommand, SaysTheSameWhateverTheNumberOfJobs) {
  const TemporaryFolder folder;
  const std::string some = "--only 'drop-[cf]*/*' --per-operator 2 --scenarios 4 --jobs ";
  const auto one = mutated(folder, some + "1", 0), three = mutated(folder, some + "3", 0);
  EXPECT_GE(one.at("results").as_array().size(), 3u);
  EXPECT_EQ(one.at("results"), three.at("results"));
}

// Shares of the list, run apart and put together, are the list.
TEST(MutateCommand, PutsTogetherWhatSeveralMachinesHaveRun) {
  const TemporaryFolder folder;
  const std::string some = "--only 'drop-[cfr]*/*' --per-operator 1 --scenarios 3 ";
  const auto all = mutated(folder, some, 0);
  std::string files;
  for (const char* shard : {"0", "1"}) {
    const std::string file = folder / ("part" + std::string(shard));
    EXPECT_EQ(
        run_lockstep("mutate --quiet " + some + "--shard " + shard + "/2 --json " + file).status,
        0);
    files += file + " ";
  }
  const auto together = mutated(folder, files, 0);
  const auto by_name = [](const boost::json::value& report) {
    std::map<std::string, boost::json::value> results;
    for (const auto& result : report.at("results").as_array()) {
      results[std::string(result.at("name").as_string())] = result;
    }
    return results;
  };
  EXPECT_GE(by_name(all).size(), 3u);
  EXPECT_EQ(by_name(together), by_name(all));
  EXPECT_EQ(together.at("summary").at("systematic"), all.at("summary").at("systematic"));
  // A fault that is missing, there twice or of another campaign would count as killed.
  const std::string first = folder / "part0", other = folder / "other";
  EXPECT_THAT(run_lockstep("mutate " + first).err, HasSubstr("share 1/2 is missing"));
  EXPECT_THAT(run_lockstep("mutate " + first + " " + files).err, HasSubstr("is the same share as"));
  EXPECT_EQ(
      run_lockstep("mutate --quiet --list --only '*/0' --scenarios 1 --shard 1/2 --json " + other)
          .status,
      0);
  EXPECT_THAT(run_lockstep("mutate " + first + " " + other).err,
              HasSubstr("is of another campaign than"));
  EXPECT_THAT(run_lockstep("mutate --seed 3 " + files).err, HasSubstr("--seed is for a run"));
}

TEST(MutateCommand, NamesAReplayThatFindsItAgain) {
  const TemporaryFolder folder;
  for (const char* name :
       {"compute-ignores-loaded-event", "oracle:norm-forgets-eps", "checker:host-orders-nothing"}) {
    const auto found =
        mutated(folder, "--scenarios 4 --only " + std::string(name), 0).at("results").at(0);
    for (const char* key : {"name", "kind", "class", "site", "equivalent", "killed", "judge",
                            "amplifier", "scenarios_to_kill", "argument", "replay"}) {
      EXPECT_TRUE(found.as_object().contains(key)) << key;
    }
    EXPECT_TRUE(found.at("killed").as_bool()) << name;
    const std::string replay(found.at("replay").as_string());
    ASSERT_THAT(replay, testing::StartsWith("lockstep "));
    // The result of a fixture program is shown again by its evaluation, which then ends well.
    const bool replays = replay.starts_with("lockstep replay ");
    const std::string words = replay.substr(std::string("lockstep ").size());
    // Without --scenarios the runs of all the library would be recorded before.
    EXPECT_EQ(run_lockstep(words + (replays ? "" : " --scenarios 4")).status, replays ? 1 : 0)
        << replay;
  }
}

TEST(MutateCommand, FailsWhenAFaultSurvives) {
  // The one case that it is tried in has no evaluation, so nobody can notice.
  const Ran ran = run_lockstep("mutate --quiet --only evaluation-with-dropout --scenarios 1");
  EXPECT_EQ(ran.status, 1) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("SURVIVED evaluation-with-dropout"));
}

TEST(MutateCommand, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(run_lockstep("mutate --scenarios 1 --only no-such-fault").status, 2);
  EXPECT_EQ(run_lockstep("mutate --scenarios 1 --only drop-wait/nowhere/0").status, 2);
  EXPECT_EQ(run_lockstep("mutate --budget 0").status, 2);
  for (const char* shard : {"2/2", "-1/2", "1", "0/2x", "a/b"}) {
    EXPECT_EQ(run_lockstep("mutate --scenarios 1 --list --shard " + std::string(shard)).status, 2)
        << shard;
  }
  EXPECT_EQ(run_lockstep("mutate " + library_file("swiglu")).status, 2);
}

}  // namespace
}  // namespace lockstep
