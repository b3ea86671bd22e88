// A run that is saved, destroyed and loaded on its way.
#include <filesystem>
#include <string>

#include "harness/base/run_folder.h"
#include "harness/expect/expectations.h"
#include "harness/expect/launches.h"
#include "harness/expect/rank_counters.h"
#include "harness/judge/judged_case.h"
#include "scenarios/by_one_rank.h"
#include "scenarios/pass_order.h"

namespace lockstep {
namespace {

// From where the run was saved last, or from the start, to `end`.
struct Part {
  std::int64_t ranks;
  Scenario::Resume begin, end;  // The end of the run: after the last step.
  bool first = false, last = false;
};

// Where ranks are processes their number stays.
std::vector<Part> parts_of(const JudgedCase& one) {
  const Scenario::Training& training = one.scenario.training;
  std::vector<Part> parts;
  std::int64_t ranks = one.scenario.parallel.data;
  Scenario::Resume begin;
  for (const Scenario::Resume& resume : training.resume_at) {
    parts.push_back({.ranks = ranks, .begin = begin, .end = resume});
    begin = resume;
    const bool stays = resume.data == 0 || one.ranks_are_processes();
    ranks = stays ? one.scenario.parallel.data : resume.data;
  }
  parts.push_back({.ranks = ranks, .begin = begin, .end = {.step = training.steps}});
  parts.front().first = parts.back().last = true;
  return parts;
}

// Returns whether no rank has found anything.
bool run_to_the_end(const Part& part, const ReferenceResults& reference, ComparedRun::Rank& rank,
                    const RunProgress& progress) {
  Trainer& trainer = rank.engine.trainer;
  while (trainer.steps_done() < part.end.step) {
    if (!unobserved_step(trainer.steps_done(), reference, rank, progress)) return false;
  }
  if (part.end.microbatch > 0) trainer.accumulate(part.end.microbatch / part.ranks);
  return true;
}

// A run that goes on behind a checkpoint and is destroyed in the middle of a step: its gathers,
// copies and reductions may be under way. The next part loads the checkpoint, so no bit may change.
// Graphs of whole steps have no middle, and a stage with chunks has no order for a part of a step.
void run_on_and_stop(const Part& part, const Scenario& scenario, Trainer& trainer) {
  if (scenario.cuda_graph.impl == GraphImpl::full_iteration) return;
  if (scenario.parallel.pipeline > 1 && scenario.parallel.chunks != 1) return;
  const std::int64_t next = trainer.microbatches_done() + 1;
  if (next < scenario.training.microbatches_at(part.end.step) / part.ranks)
    trainer.accumulate(next);
}

// Returns "" or which counter shows that a part did without graphs that its steps ask for, which
// loses time and changes no bit.
std::string unmet_launches(const JudgedCase& one, const Scenario& scenario, const Part& part,
                           const Counters& counters) {
  const auto point = [&](const Scenario::Resume& at) -> RunPoint {
    return {.step = at.step, .microbatch = at.microbatch / part.ranks};
  };
  return unmet(launches_of_part(scenario, one.data, point(part.begin), point(part.end)), counters);
}

// Files, sockets and pipes that this process has open.
std::int64_t open_files() {
  std::int64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

}  // namespace

static RunOutcome run_in_parts(const JudgedCase& one, const ReferenceResults& reference,
                               const SimOptions& sim, std::string& path) {
  return outcome_of([&](RunOutcome& outcome) {
    const RunFolder folder;
    path = folder.path() + "/";
    const RunProgress progress(one.options, "resumed run", one.scenario.training.steps);
    const std::int64_t open_before = open_files();
    for (const Part& part : parts_of(one)) {
      const Scenario scenario = by_ranks(one.scenario, part.ranks);
      if (one.watch != nullptr) one.watch->begin(part.ranks);
      RunOptions options = one.options;
      LocalRanks ranks;
      if (options.ranks != nullptr && !one.ranks_are_processes()) {
        ranks = *options.ranks;
        ranks.count = static_cast<int>(ranks_of_run(scenario));
        options.ranks = &ranks;
      }
      Checker checker(one.checker_options());
      Counters counters;
      {
        ComparedRun run(scenario, one.data, options, sim, Compared::result_only,
                        one.observer(checker));
        collect(outcome, run, [&] {
          run.on_ranks([&](ComparedRun::Rank& rank) {
            // Several processes use the folder of the first one.
            const std::string file =
                rank.engine.communicator.all_gather_object(folder.path()).front() + "/state";
            if (!part.first) rank.engine.trainer.load(file);
            if (!run_to_the_end(part, reference, rank, progress)) return;
            run.count(rank.engine);
            if (part.last) return compare_state(outcome, reference, rank);
            rank.engine.trainer.save(file);
            run_on_and_stop(part, scenario, rank.engine.trainer);
          });
        });
        counters =
            merged(run.counters(), one.ranks_are_processes(), one.scenario.parallel.pipeline);
      }
      if (!outcome.holds()) return;
      checker.throw_found();
      const std::string unmet = unmet_launches(one, scenario, part, counters);
      if (!unmet.empty()) outcome.finding = {.judge = JudgeKind::vacuous, .reason = unmet};
      if (!outcome.holds()) return;
      // A driver opens files of its own.
      const std::int64_t left_open = one.options.device == "sim" ? open_files() - open_before : 0;
      if (left_open > 0) {
        outcome.finding = {
            .judge = JudgeKind::costs,
            .reason = "files that the run opened and did not close: " + std::to_string(left_open)};
      }
      if (!outcome.holds()) return;
      outcome.resumes += !part.last;
    }
  });
}

// The folder's name is another in each run, and a report is the same in each.
RunOutcome resumed_run(const JudgedCase& one, const ReferenceResults& reference,
                       const SimOptions& sim) {
  std::string path;
  RunOutcome outcome = run_in_parts(one, reference, sim, path);
  if (!outcome.finding || path.empty()) return outcome;
  std::string& reason = outcome.finding->reason;
  for (std::size_t at = reason.find(path); at != std::string::npos; at = reason.find(path))
    reason.erase(at, path.size());
  return outcome;
}

}  // namespace lockstep
