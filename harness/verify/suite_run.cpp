#include "harness/verify/suite_run.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "harness/base/interrupts.h"
#include "harness/base/machine_memory.h"
#include "harness/base/stopwatch.h"
#include "harness/judge/runner.h"
#include "harness/report/report.h"
#include "harness/report/result_json.h"
#include "harness/run/device_choice.h"
#include "harness/run/memory_check.h"
#include "harness/run/multi_process_case.h"
#include "harness/run/rank_teams.h"
#include "harness/run/request_worker.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

// Bounds the number of later cases that state left by a case can affect.
constexpr std::size_t kCasesPerProcess = 200;

using Numbers = std::deque<std::size_t>;  // Places in the list of cases.

std::string title(const CaseResult& one) { return one.name + " " + one.numerics; }

// The result of a case that failed behind others of its process, and held alone. The first is told
// as it was: to take the second run for the result would hide a race, or an error of an earlier
// case. Only memory that was wanting says nothing of either.
CaseResult held_alone(CaseResult first, const std::vector<std::string>& before, CaseResult second) {
  if (first.judge == JudgeKind::memory) return second;
  constexpr std::size_t kNamed = 3;
  std::string names;
  for (std::size_t i = before.size() - std::min(before.size(), kNamed); i < before.size(); ++i)
    names += (names.empty() ? "" : ", ") + before[i];
  first.reason +=
      "; it held when it ran again alone in a process of its own, so this is a race, or what one "
      "of " +
      std::to_string(before.size()) + " earlier cases left in its process (last: " + names + ")";
  return first;
}

// Cases on workers of one kind.
class SuiteRun {
 public:
  SuiteRun(const std::vector<PlannedCase>& cases, const SuiteOptions& options,
           const SuiteEvents& events)
      : cases_(cases),
        options_(options),
        events_(events),
        worker_(cases, options.run, options.judge),
        memory_(static_cast<double>(machine_memory().bytes)) {}

  // May be called again, with other cases.
  SuiteEnd run(Numbers waiting, SuiteWorker::Opens opens, int jobs) {
    waiting_ = std::move(waiting);
    opens_ = opens;
    slots_ = std::vector<Slot>(jobs);
    while (give()) {
      if (Interrupts::came()) return SuiteEnd::interrupted;  // Whoever runs still is killed.
      listen();
      tell();
    }
    slots_.clear();
    return stopped_ ? SuiteEnd::after_a_failure : SuiteEnd::complete;
  }

 private:
  // A case that failed behind others, until it has run alone.
  struct FirstRun {
    CaseResult result;
    std::vector<std::string> before;
  };
  struct Slot {
    std::unique_ptr<RequestWorker> worker;
    std::vector<std::string> before;    // The cases that this worker has finished.
    std::optional<std::size_t> number;  // The case that it runs.
    std::optional<FirstRun> first;      // How that case ran first.
    double memory = 0;                  // That case takes so much.
    Stopwatch since;                    // It was asked for.
  };

  // False when nothing runs and nothing is left to run.
  bool give() {
    bool running = false;
    for (Slot& slot : slots_) {
      if (!slot.number && !stopped_ && !waiting_.empty() && has_room()) {
        slot.number = waiting_.front();
        slot.memory = needed(*slot.number);
        waiting_.pop_front();
        ask(slot);
      }
      running = running || slot.number;
    }
    return running;
  }

  double needed(std::size_t number) const {
    const Scenario& scenario = at(cases_, number).scenario;
    return memory_needed(scenario, memory_use(scenario, options_.run.device));
  }
  // For the next case beside those that run. One that takes too much runs alone.
  bool has_room() const {
    double used = 0;
    for (const Slot& slot : slots_) used += slot.number ? slot.memory : 0;
    return used == 0 || used + needed(waiting_.front()) <= memory_;
  }

  void ask(Slot& slot) {
    if (slot.before.size() >= kCasesPerProcess) end_worker(slot);
    if (!slot.worker) {
      const auto number = static_cast<int>(&slot - slots_.data());
      slot.worker = std::make_unique<RequestWorker>(worker_.setup(number, opens_));
    }
    slot.since = Stopwatch();
    slot.worker->ask(std::to_string(*slot.number));
  }

  void listen() {
    std::vector<RequestWorker*> workers;
    for (const Slot& slot : slots_) workers.push_back(slot.worker.get());
    RequestWorker::listen(workers, 100);
    for (Slot& slot : slots_) {
      if (slot.number) {
        look_at(slot);
      } else if (slot.worker && !slot.worker->is_open()) {
        end_worker(slot);
      }
    }
  }

  void look_at(Slot& slot) {
    if (const std::optional<std::string> answer = slot.worker->take_answer()) {
      took(slot, result_from_json(boost::json::parse(*answer)));
    } else if (!slot.worker->is_open()) {
      took(slot, death(slot, slot.worker->end()));
    } else if (slot.since.seconds() > options_.timeout_s) {
      took(slot, death(slot, end_of_hung(*slot.worker)));
    }
  }

  static ChildEnd end_of_hung(RequestWorker& worker) {
    const std::string phase = worker.phase(), said = last_words(worker.said()),
                      where = worker.where();
    ChildEnd end = worker.end();
    end.timed_out = true;
    end.last_words =
        phase + (where.empty() ? "" : ", in " + where) + (said.empty() ? "" : ": " + said);
    return end;
  }

  CaseResult death(const Slot& slot, const ChildEnd& end) const {
    CaseResult result = unjudged_case(at(cases_, *slot.number).scenario, options_.run);
    result.device.kind = options_.run.device;
    result.seconds = slot.since.seconds();
    judge_death(result, end, options_.timeout_s);
    return result;
  }

  void took(Slot& slot, const CaseResult& result) {
    const CaseResult told = judged_by_expectation(at(cases_, *slot.number).scenario, result);
    const std::vector<std::string> before = slot.before;
    slot.before.push_back(title(result));
    if (fails(result)) end_worker(slot);
    if (slot.first && !fails(told))
      return finish(slot, held_alone(slot.first->result, slot.first->before, told));
    if (slot.first || !fails(told) || before.empty()) return finish(slot, told);
    slot.first = {told, before};
    ask(slot);  // In a new process, since this one has ended.
  }

  void finish(Slot& slot, const CaseResult& result) {
    const std::size_t number = *slot.number;
    slot.number.reset();
    slot.first.reset();
    stopped_ = stopped_ || (options_.fail_fast && fails(result));
    events_.finished(number, result);
  }

  static void end_worker(Slot& slot) {
    slot.worker.reset();
    slot.before.clear();
  }

  void tell() const {
    std::vector<CaseUnderWay> list;
    for (const Slot& slot : slots_) {
      if (slot.number) list.push_back({*slot.number, slot.worker->phase(), slot.since.seconds()});
    }
    events_.waited(list);
  }

  const std::vector<PlannedCase>& cases_;
  const SuiteOptions& options_;
  const SuiteEvents& events_;
  SuiteWorker worker_;
  const double memory_;
  Numbers waiting_;
  SuiteWorker::Opens opens_ = SuiteWorker::Opens::one_gpu;
  std::vector<Slot> slots_;
  bool stopped_ = false;
};

SuiteEnd run_here(const std::vector<PlannedCase>& cases, const Numbers& numbers,
                  const SuiteOptions& options, const SuiteEvents& events) {
  for (const std::size_t number : numbers) {
    if (Interrupts::came()) return SuiteEnd::interrupted;
    const Scenario& scenario = at(cases, number).scenario;
    const CaseResult result = judged_by_expectation(scenario, options.judge(scenario, options.run));
    events.finished(number, result);
    if (options.fail_fast && fails(result)) return SuiteEnd::after_a_failure;
  }
  return SuiteEnd::complete;
}

}  // namespace

int default_jobs(const std::string& device) {
  return std::max(
      1, device == "cuda" ? gpus_here() : static_cast<int>(std::thread::hardware_concurrency()));
}

SuiteEnd run_suite(const std::vector<PlannedCase>& cases, const SuiteOptions& options,
                   const SuiteEvents& events) {
  Numbers all, on_several_gpus;
  bool failed = false;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].decided) {
      failed = failed || fails(*cases[i].decided);
      events.finished(i, *cases[i].decided);
      continue;
    }
    // A process that has opened CUDA cannot start another that uses it.
    const bool apart = options.run.device == "cuda" && wants_processes(cases[i].scenario);
    (apart && options.fork ? on_several_gpus : all).push_back(i);
  }
  if (failed && options.fail_fast) return SuiteEnd::after_a_failure;
  if (!options.fork) return run_here(cases, all, options, events);
  SuiteRun run(cases, options, events);
  const SuiteEnd end = run.run(std::move(all), SuiteWorker::Opens::one_gpu, options.jobs);
  if (end != SuiteEnd::complete) return end;
  // Equal teams stay together. They take all GPUs, so they run one by one.
  std::stable_sort(on_several_gpus.begin(), on_several_gpus.end(),
                   [&](std::size_t a, std::size_t b) {
                     return team_of(cases[a].scenario) < team_of(cases[b].scenario);
                   });
  return run.run(std::move(on_several_gpus), SuiteWorker::Opens::none, 1);
}

}  // namespace lockstep
