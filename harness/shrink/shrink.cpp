#include "harness/shrink/shrink.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "harness/base/errors.h"
#include "harness/base/interrupts.h"
#include "harness/base/stopwatch.h"
#include "harness/case/schedules.h"
#include "harness/expect/vacuity.h"
#include "harness/run/worker.h"
#include "harness/shrink/reason.h"
#include "harness/shrink/rules.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

constexpr double kSearchShare = 0.8;  // Share of the budget; the rest finds out what may vary.
// A smaller scenario may hold only because no sum of it happens to round: other weights and tokens
// find one that does.
constexpr std::int64_t kOtherSeeds[] = {1, 2, 3, 4, 5, 6};

// The candidate as its file would be read, which checks ranges, legality and whether it is built;
// nothing if refused.
std::optional<Scenario> legal(const Scenario& candidate) {
  const std::string folder = candidate.folder.empty() ? "" : candidate.folder + "/";
  ReadResult read = read_scenario_text(to_yaml(settled(candidate)), folder + "candidate.yaml");
  if (!read.ok()) return std::nullopt;
  read.scenario.folder = candidate.folder;
  return std::move(read.scenario);
}

bool asks_in_vain(const Scenario& scenario) {
  return !asked_in_vain(scenario, *open_data(scenario)).empty();
}

class Search {
 public:
  Search(const Scenario& scenario, const ShrinkOptions& options)
      : given_(scenario), options_(options) {
    shrunk_.run = options.run;
    timeout_s_ = options.timeout_s;
  }

  Shrunk run() {
    try {
      search();
    } catch (const Interrupted&) {
      shrunk_.interrupted = true;
    } catch (const GaveUp&) {  // What was found until then stands.
      if (hurried_) confirmed();
    }
    if (!shrunk_.result.token.empty()) {
      if (unconfirmed_) start_again();
      shrunk_.scenario = current_;
      shrunk_.scenario.description = shrunk_description(shrunk_.result);
      if (!shrunk_.interrupted) name_op();
    }
    shrunk_.seconds = watch_.seconds();
    return std::move(shrunk_);
  }

 private:
  void search() {
    if (!begin()) return;
    const bool at_the_end = descend();
    const bool same = confirmed();
    settle_count();
    vary();
    shrunk_.finished = at_the_end && same;
  }

  // The failure, the device to shrink on, and whether it depends on the schedule. False if nothing
  // fails.
  bool begin() {
    shrunk_.first = run_once(given_);
    shrunk_.begun = true;
    if (shrunk_.first.verdict != Verdict::violated && shrunk_.first.verdict != Verdict::broken)
      return false;
    // A claim of the file, true of no smaller scenario.
    if (shrunk_.first.judge == JudgeKind::counters) return false;
    reason_ = shrunk_.result = shrunk_.first;
    does_what_it_asks_ = reason_.judge == JudgeKind::vacuous && !asks_in_vain(given_);
    current_ = start();
    move_to_simulator();
    current_ = start();
    // A whole timeout for each candidate would be the budget of a few.
    if (reason_.judge == JudgeKind::watchdog) timeout_s_ = std::max(0.5, options_.timeout_s / 10);
    const CaseResult result = run_once(current_);
    // Else a race, or a death that the name changed.
    if (same_reason(result, shrunk_.first)) reason_ = shrunk_.result = result;
    settle_count();
    racy_ = shrunk_.failed < shrunk_.of;
    seen_.insert(key_of(current_));
    return true;
  }

  void move_to_simulator() {
    if (options_.run.device == "sim") return;
    RunOptions on_simulator = options_.run;
    on_simulator.device = "sim";
    const CaseResult there = run_once(given_, on_simulator);
    if (!same_reason(there, shrunk_.first)) return;
    shrunk_.first = reason_ = shrunk_.result = there;
    shrunk_.run = on_simulator;
  }

  // Narrowed to the precision and the schedule that failed. The file's own expectation is no part
  // of the case.
  Scenario start() const {
    Scenario s = narrowed(given_, given_.numerics.front(), seed_of(shrunk_.first));
    s.name = name_of(shrunk_.first);
    s.description.clear();
    s.expect.verdict = ExpectedVerdict::holds;
    s.expect.judge = s.expect.error = "none";
    return s;
  }

  // True at the fixed point, false if the budget ended first.
  bool descend() {
    double seconds = options_.seconds * kSearchShare;
    hurried_ = options_.confirmer != nullptr;
    // The last run of a hang takes a whole timeout.
    if (reason_.judge == JudgeKind::watchdog) {
      unconfirmed_ = true;
      seconds = std::min(seconds, options_.seconds - options_.timeout_s - 2 * timeout_s_);
    }
    const auto runs = static_cast<std::int64_t>(static_cast<double>(options_.runs) * kSearchShare);
    limit_seconds_ = seconds;
    limit_runs_ = std::max<std::int64_t>(runs, 1);
    do {
      while (!spent() && apply_all(&Search::apply)) {
      }
    } while (!spent() &&
             (apply(small_layouts_rule()) ||
              (reason_.first_difference && apply_all(&Search::apply_with_other_seeds)) ||
              reset_settings_for_another_effect()));
    const bool ended = !spent();
    limit_seconds_ = options_.seconds;
    limit_runs_ = options_.runs;
    return ended;
  }

  // A hang was judged with a short timeout: the whole one must agree, or the scenario as given
  // stands. So must what a hurried search left out.
  bool confirmed() {
    const bool hurried = std::exchange(hurried_, false);
    if ((!unconfirmed_ && !hurried) || key_of(current_) == key_of(start())) return true;
    timeout_s_ = options_.timeout_s;
    CaseResult result = hurried ? options_.confirmer(current_) : run_once(current_);
    const bool same = same_reason(result, reason_);
    if (same) shrunk_.result = std::move(result);
    if (!same) start_again();
    unconfirmed_ = false;
    return same;
  }
  void start_again() {
    current_ = start();
    shrunk_.result = reason_;
  }

  // Whether one of the rules found something smaller.
  bool apply_all(bool (Search::*apply)(const ShrinkRule&)) {
    bool smaller = false;
    const Early early = options_.documents_first ? Early::documents : Early::features;
    for (const ShrinkRule& rule : shrink_rules(early)) {
      while (!spent() && (this->*apply)(rule)) smaller = true;
    }
    return smaller;
  }

  bool apply(const ShrinkRule& rule) {
    for (const Scenario& candidate : rule.candidates(current_)) {
      if (spent()) return false;
      if (!accept(candidate)) continue;
      show(rule.name);
      return true;
    }
    return false;
  }

  bool apply_with_other_seeds(const ShrinkRule& rule) {
    for (const Scenario& candidate : rule.candidates(current_)) {
      if (key_of(settled(with_seed(candidate, current_.training.seed))) == key_of(current_))
        continue;
      for (const std::int64_t seed : kOtherSeeds) {
        if (spent()) return false;
        if (!accept(with_seed(candidate, seed))) continue;
        show(rule.name + ", another seed");
        return true;
      }
    }
    return false;
  }
  static Scenario with_seed(Scenario scenario, std::int64_t seed) {
    scenario.training.seed = seed;
    return scenario;
  }

  // Which of several effects is seen first may hang on a setting that has no part in the failure,
  // as that the head's weight is the embedding's: a setting less is worth another one.
  bool reset_settings_for_another_effect() {
    if (!same_cause(reason_, reason_)) return false;  // Not of those that have several.
    for (const Scenario& candidate : settings_rule().candidates(current_)) {
      Scenario one = with_seed(candidate, current_.training.seed);
      one.checker.schedule = current_.checker.schedule;
      const std::optional<Scenario> fewer = legal(one);
      if (!fewer || key_of(*fewer) == key_of(current_)) continue;
      if (spent() || !seen_for_others_.insert(key_of(*fewer)).second) continue;
      const CaseResult result = run_once(*fewer);
      if (!same_cause(result, reason_)) continue;
      take_reason(*fewer, result);
      return true;
    }
    return false;
  }

  // From here on smaller scenarios are compared with `result`, including those that were tried
  // before.
  void take_reason(const Scenario& scenario, const CaseResult& result) {
    current_ = scenario;
    reason_ = shrunk_.result = result;
    Scenario renamed = scenario;
    renamed.name = name_of(result);
    const CaseResult again = run_once(renamed);
    if (same_reason(again, result)) {  // Else a race that the new name changed.
      current_ = std::move(renamed);
      reason_ = shrunk_.result = again;
    }
    settle_count();
    racy_ = shrunk_.failed < shrunk_.of;
    seen_ = {key_of(current_)};
  }
  std::string name_of(const CaseResult& result) const {
    return options_.name ? options_.name(result) : reason_name(result);
  }

  bool accept(const Scenario& proposed) {
    const std::optional<Scenario> candidate = legal(proposed);
    if (!candidate || !seen_.insert(key_of(*candidate)).second || fails_alone(*candidate))
      return false;
    std::optional<CaseResult> result = fails(*candidate);
    if (!result) return false;
    current_ = *candidate;
    current_.checker.schedule.seed = seed_of(*result);
    shrunk_.result = std::move(*result);
    return true;
  }

  // The result of a run that fails for the reason; racy cases get several schedules or repetitions.
  std::optional<CaseResult> fails(const Scenario& candidate) {
    Scenario one = candidate;
    for (int i = 0; i < (racy_ ? options_.tries : 1) && !spent(); ++i) {
      if (i > 0) one.checker.schedule.seed = candidate.checker.schedule.seed == i ? 0 : i;
      CaseResult result = run_once(one);
      if (same_reason(result, reason_)) return result;
    }
    return std::nullopt;
  }

  // Whether the candidate would fail without the bug, although the scenario as given would not.
  bool fails_alone(const Scenario& candidate) const {
    return does_what_it_asks_ && asks_in_vain(candidate);
  }

  // k of n schedules of the current scenario fail.
  void settle_count() {
    if (reason_.judge == JudgeKind::watchdog) return;  // A timeout each is too dear.
    shrunk_.failed = shrunk_.of = 0;
    Scenario one = current_;
    for (int i = 1; i <= options_.tries; ++i) {
      one.checker.schedule.seed = i;
      shrunk_.failed += same_reason(run_once(one), reason_);
      ++shrunk_.of;
    }
  }

  void vary() {
    std::map<std::string, std::size_t> place;
    for (const Variation& variation : variations(current_)) {
      if (spent()) return;
      const std::optional<Scenario> other = legal(variation.scenario);
      if (!other || canonical_form(*other) == canonical_form(current_)) continue;
      if (fails_alone(*other)) continue;
      const bool same = fails(*other).has_value();
      const auto [at, is_new] = place.emplace(variation.key, shrunk_.freedoms.size());
      if (is_new) shrunk_.freedoms.push_back({variation.key, {}, {}});
      Freedom& freedom = shrunk_.freedoms[at->second];
      (same ? freedom.fails : freedom.other).push_back(variation.value);
    }
  }

  // A name for the op takes another run of each case that differs, which only the result needs.
  void name_op() {
    const CaseResult& result = shrunk_.result;
    const bool may_have_one = result.first_difference || result.judge == JudgeKind::hazard;
    if (options_.runner || !may_have_one) return;
    const CaseResult named = run_in_worker(
        current_, shrunk_.run, {.fork = true, .timeout_s = options_.timeout_s, .echo = false});
    if (same_reason(named, shrunk_.result)) shrunk_.result.wrong_op = named.wrong_op;
  }

  CaseResult run_once(const Scenario& scenario) {
    RunOptions run = shrunk_.run;
    run.names_op = false;
    return run_once(scenario, run);
  }
  // GaveUp where the budget ended first: a run that was stopped for it says nothing.
  CaseResult run_once(const Scenario& scenario, const RunOptions& run) {
    if (Interrupts::came()) throw Interrupted("interrupted by " + Interrupts::name());
    const double left = options_.seconds - watch_.seconds();
    if (left <= 0) throw GaveUp("the budget is spent");
    ++shrunk_.runs;
    const double timeout_s = std::min(timeout_s_, left);
    CaseResult result =
        options_.runner
            ? options_.runner(scenario, run, timeout_s)
            : run_in_worker(scenario, run, {.fork = true, .timeout_s = timeout_s, .echo = false});
    if (timeout_s < timeout_s_ && result.judge == JudgeKind::watchdog)
      throw GaveUp("the budget ended before this run");
    return result;
  }

  // The seed of the schedule that failed, which the token names.
  std::int64_t seed_of(const CaseResult& result) const {
    return read_token(result.token, given_.folder).checker.schedule.seed;
  }

  bool spent() const { return watch_.seconds() >= limit_seconds_ || shrunk_.runs >= limit_runs_; }

  // A racy case looks for its schedule anew each time.
  std::string key_of(Scenario scenario) const {
    if (racy_) scenario.checker.schedule = {};
    return canonical_form(scenario);
  }

  void show(const std::string& rule) {
    if (!options_.progress) return;
    char text[256];
    std::snprintf(text, sizeof text,
                  "shrink: %lld runs, %.1f s, %s: \"%s\", %lld steps, %lld documents",
                  static_cast<long long>(shrunk_.runs), watch_.seconds(), rule.c_str(),
                  current_.model.pattern.c_str(), static_cast<long long>(current_.training.steps),
                  static_cast<long long>(documents_in(current_.data.documents)));
    options_.progress(text);
  }

  const Scenario& given_;
  const ShrinkOptions& options_;
  const Stopwatch watch_;
  Shrunk shrunk_;
  Scenario current_;
  CaseResult reason_;
  bool racy_ = false;
  // The given scenario fails as vacuous, although it asks for nothing that it forbids itself.
  bool does_what_it_asks_ = false;
  bool unconfirmed_ = false;  // Hangs, by the short timeout alone.
  bool hurried_ = false;      // What was found was not given to options_.confirmer yet.
  double timeout_s_ = 0;
  double limit_seconds_ = 1e9;
  std::int64_t limit_runs_ = INT64_MAX;
  // The latter by reset_settings_for_another_effect.
  std::set<std::string> seen_, seen_for_others_;
};

}  // namespace

Shrunk shrink(const Scenario& scenario, const ShrinkOptions& options) {
  return Search(scenario, options).run();
}

}  // namespace lockstep
