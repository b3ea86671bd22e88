#include "harness/mutate/pool.h"

#include <cstdio>
#include <memory>
#include <sstream>

#include "harness/base/interrupts.h"
#include "harness/base/stopwatch.h"
#include "harness/base/subprocess.h"
#include "harness/mutate/equivalent_mutant.h"
#include "harness/report/result_json.h"
#include "harness/run/request_worker.h"
#include "harness/run/run_case.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

// Runs of one process: what a fault left behind does not live on for long.
constexpr int kServesAtMost = 200;

class Pool {
 public:
  Pool(std::vector<MutantEvaluation>& trials, const std::vector<Fault>& faults,
       const std::vector<MutationCase>& cases, const PoolOptions& options,
       const std::function<void(std::size_t)>& told,
       const std::function<std::unique_lock<std::mutex>()>& lock)
      : trials_(trials),
        faults_(faults),
        cases_(cases),
        options_(options),
        told_(told),
        lock_(lock) {}

  void run() {
    std::vector<Slot> slots(options_.jobs);
    while (true) {
      bool busy = false;
      for (Slot& slot : slots) {
        if (slot.trial < 0) give(slot);
        busy = busy || slot.trial >= 0;
      }
      if (!busy || over()) return;  // Whoever runs still is killed.
      listen(slots);
      for (Slot& slot : slots) {
        if (slot.trial >= 0) look_at(slot);
      }
    }
  }

 private:
  struct Slot {
    std::unique_ptr<RequestWorker> worker;
    int trial = -1;
    EvaluationRun run;
    double deadline = 0;
  };

  bool over() const {
    return Interrupts::came() || (options_.budget_s != 0 && watch_.seconds() > options_.budget_s);
  }

  void give(Slot& slot) {
    if (over() || next_ == trials_.size()) return;
    slot.trial = static_cast<int>(next_++);
    ask(slot);
  }

  void ask(Slot& slot) {
    slot.run = *at(trials_, slot.trial).next();
    if (slot.worker && slot.worker->served() >= kServesAtMost) slot.worker.reset();
    if (!slot.worker) {
      const auto answer = [this](const std::string& request, const auto&) {
        return run_here(request);
      };
      slot.worker = std::make_unique<RequestWorker>(WorkerSetup{{}, answer});
    }
    slot.deadline =
        watch_.seconds() + options_.timeout_s * (slot.run.mode == EvaluationMode::prove ? 10 : 1);
    slot.worker->ask(std::to_string(slot.run.fault) + " " + std::to_string(slot.run.at) + " " +
                     std::to_string(static_cast<int>(slot.run.mode)));
  }

  static void listen(const std::vector<Slot>& slots) {
    std::vector<RequestWorker*> workers;
    for (const Slot& slot : slots) {
      if (slot.trial >= 0) workers.push_back(slot.worker.get());
    }
    RequestWorker::listen(workers, 200);
  }

  void look_at(Slot& slot) {
    if (const auto answer = slot.worker->take_answer()) {
      return take(slot, result_from_json(boost::json::parse(*answer)));
    }
    const bool late = watch_.seconds() > slot.deadline;
    if (slot.worker->is_open() && !late) return;
    ChildEnd end = slot.worker->end();
    end.timed_out = late;
    slot.worker.reset();
    const PreparedRun run = prepare(slot.run);
    CaseResult result = unjudged_case(run.scenario, run.options);
    judge_death(result, end, options_.timeout_s);
    take(slot, result);
  }

  void take(Slot& slot, const CaseResult& result) {
    MutantEvaluation& trial = at(trials_, slot.trial);
    {
      const auto held = lock_();
      trial.take(result);
    }
    if (!trial.outcome().done && !over()) return ask(slot);
    slot.trial = -1;
    told_(++done_);
  }

  PreparedRun prepare(const EvaluationRun& run) const {
    return prepared(at(faults_, run.fault), at(cases_, run.at), run.mode);
  }

  // In the worker.
  std::string run_here(const std::string& request) const {
    std::istringstream words(request);
    EvaluationRun one;
    int mode = 0;
    words >> one.fault >> one.at >> mode;
    one.mode = static_cast<EvaluationMode>(mode);
    const PreparedRun run = prepare(one);
    if (one.mode == EvaluationMode::idle) {
      return boost::json::serialize(
          to_json(judge_equivalence(run.scenario, *device_fault(run.options.planted.engine))));
    }
    const FixtureProgram* program = at(cases_, one.at).program;
    plant_fault(run.options.planted.engine);
    const CaseResult result =
        program ? program->run(run.options) : run_case(run.scenario, run.options);
    plant_fault("");
    return boost::json::serialize(to_json(result));
  }

  std::vector<MutantEvaluation>& trials_;
  const std::vector<Fault>& faults_;
  const std::vector<MutationCase>& cases_;
  const PoolOptions& options_;
  const std::function<void(std::size_t)>& told_;
  const std::function<std::unique_lock<std::mutex>()>& lock_;
  Stopwatch watch_;
  std::size_t next_ = 0, done_ = 0;
};

}  // namespace

void run_trials(std::vector<MutantEvaluation>& trials, const std::vector<Fault>& faults,
                const std::vector<MutationCase>& cases, const PoolOptions& options,
                const std::function<void(std::size_t)>& told,
                const std::function<std::unique_lock<std::mutex>()>& lock) {
  Pool(trials, faults, cases, options, told, lock).run();
}

}  // namespace lockstep
