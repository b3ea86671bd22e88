// The parent of a campaign: gives cases to workers, watches them, and has written down what came of
// each.
#include "harness/campaign/campaign.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "harness/base/interrupts.h"
#include "harness/base/progress.h"
#include "harness/base/state_folder.h"
#include "harness/base/stopwatch.h"
#include "harness/base/subprocess.h"
#include "harness/campaign/book.h"
#include "harness/campaign/cases.h"
#include "harness/campaign/jobs.h"
#include "harness/campaign/line_interval.h"
#include "harness/campaign/queue.h"
#include "harness/report/report.h"

namespace lockstep {
namespace {

constexpr double kOneEventSeconds = 1;
constexpr double kGraceSeconds = 10;  // For the cases that run when a signal comes.
// On sim: bounds the number of later cases that state left by a case can affect.
constexpr int kCasesPerProcess = 200;

// Drawn once: the parent makes a case for each worker, and drawing takes it milliseconds.
struct MadeJob {
  Job job;
  CampaignCase one;
};

struct Slot {
  std::unique_ptr<RequestWorker> worker;
  bool starts_ranks = false;  // On GPUs: the worker opens none itself.
  std::optional<MadeJob> made;
  Stopwatch since;
};

// A failing case whose verdict is still open.
struct Pending {
  CaseRecord record;
  std::vector<FurtherRun> further;
};

class Campaign {
 public:
  explicit Campaign(const CampaignOptions& options)
      : options_(options),
        book_(options_),
        state_(options.log),
        cases_(options_, book_.corpus()),
        jobs_(options_, cases_),
        queue_(options_, book_),
        progress_(options.quiet),
        slots_(options.jobs) {}

  CampaignReport run() {
    const Interrupts interrupts;
    while (give_jobs() && !must_end()) {
      listen();
      show();
    }
    leave_the_rest();
    progress_.clear();
    book_.report().seconds = watch_.seconds();
    return book_.report();
  }

 private:
  // The sender of a second signal wants no further case, and the sender of a first one may soon
  // send one that cannot be caught.
  bool must_end() {
    if (!Interrupts::came()) return false;
    if (!since_signal_) since_signal_.emplace();
    // A launcher may send one to the process and to its group, or two kinds, at once.
    if (since_signal_->seconds() < kOneEventSeconds) Interrupts::forget_again();
    if (!Interrupts::came_again() && since_signal_->seconds() < kGraceSeconds) return false;
    queue_.end_early("it was interrupted");
    return true;
  }
  // Cases that run still are left to --resume; what failed is told, with as many further runs as
  // there are.
  void leave_the_rest() {
    slots_.clear();
    for (auto& [job, pending] : pending_) {
      classify(pending.record, pending.further);
      book_.finish(std::move(pending.record), cases_.make(job));
    }
    pending_.clear();
  }

  // False when nothing runs and nothing is left to run.
  bool give_jobs() {
    bool running = false;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (!slot.made) {
        std::optional<MadeJob> made = next_job();
        if (!made) continue;
        give(slot, static_cast<int>(i), std::move(*made));
      }
      running = true;
    }
    return running;
  }

  // The next case that must be run: a corpus's file that is refused as expected, or skipped, is
  // done by being read.
  std::optional<MadeJob> next_job() {
    while (const std::optional<Job> job = queue_.next(watch_.seconds())) {
      MadeJob made{*job, cases_.make(*job)};
      const std::optional<CaseResult> decided = cases_.decided(made.job, made.one);
      if (!decided) return made;
      finish(made, *decided);
    }
    return {};
  }

  void give(Slot& slot, int number, MadeJob made) {
    const auto& [job, one] = made;
    const bool worn =
        slot.worker && slot.worker->served() >= kCasesPerProcess && options_.run.device == "sim";
    if (slot.worker && (worn || (job.again && slot.worker->served() > 0))) slot.worker.reset();
    const bool starts_ranks = cases_.starts_ranks_on_gpus(one);
    if (slot.worker && !one.invalid && slot.starts_ranks != starts_ranks) slot.worker.reset();
    if (!slot.worker) {
      slot.starts_ranks = starts_ranks;
      slot.worker =
          std::make_unique<RequestWorker>(jobs_.worker(number, state_.path(), starts_ranks));
    }
    slot.since = Stopwatch();
    slot.worker->ask(request_of(job));
    slot.made = std::move(made);
  }

  // --- What comes back.

  void listen() {
    std::vector<RequestWorker*> workers;
    for (const Slot& slot : slots_) workers.push_back(slot.worker.get());
    RequestWorker::listen(workers, 100);
    for (Slot& slot : slots_) {
      if (slot.made) {
        heard(slot);
      } else if (slot.worker && !slot.worker->is_open()) {
        slot.worker.reset();
      }
    }
  }

  void heard(Slot& slot) {
    if (const std::optional<std::string> answer = slot.worker->take_answer()) {
      FurtherRun run = run_of(*answer);
      if (run.result.judge == JudgeKind::state) throw WorldError(run.result.reason);
      took(slot, std::move(run));
    } else if (!slot.worker->is_open()) {
      const auto& [job, one] = *slot.made;
      took(slot, {cases_.death(job, one, slot.worker->end()), ""});
    } else if (slot.since.seconds() > options_.timeout_s) {
      hung(slot);
    }
  }

  void hung(Slot& slot) {
    const std::string phase = slot.worker->phase(), where = slot.worker->where();
    ChildEnd end = slot.worker->end();
    end.timed_out = true;
    end.last_words = phase + (where.empty() ? "" : ", in " + where);
    took(slot, {cases_.death(slot.made->job, slot.made->one, end), ""});
  }

  void took(Slot& slot, FurtherRun run) {
    const auto [job, one] = *std::exchange(slot.made, std::nullopt);
    if (run.result.seconds == 0) run.result.seconds = slot.since.seconds();
    book_.report().add(run.times, slot.since.seconds());
    if (!run.result.device.name.empty()) book_.report().device = run.result.device;
    // A process in which something failed judges nothing else.
    if (fails(run.result)) slot.worker.reset();
    if (job.again) return took_again(job, std::move(run));
    CaseRecord record = cases_.record(job, one);
    if (run.result.token.empty() && !one.invalid) {  // It had no memory left to say what it was.
      const CaseResult named = unjudged_case(one.scenario, cases_.run_options(job));
      run.result.numerics = named.numerics;
      run.result.token = named.token;
      run.result.replay = named.replay;
    }
    record.result = std::move(run.result);
    const int reruns = reruns_of(record.result);
    if (!fails(record.result) || reruns == 0) return book_.finish(std::move(record), one);
    pending_[job].record = std::move(record);
    queue_.run_again(job, reruns);
  }

  // Each run of a hang takes the whole timeout.
  int reruns_of(const CaseResult& first) const {
    return first.judge == JudgeKind::watchdog ? std::min(options_.reruns, 1) : options_.reruns;
  }

  void took_again(Job job, FurtherRun run) {
    job.again = false;
    Pending& pending = pending_.at(job);
    pending.further.push_back(std::move(run));
    if (std::ssize(pending.further) < reruns_of(pending.record.result)) return;
    CaseRecord record = std::move(pending.record);
    classify(record, pending.further);
    pending_.erase(job);
    book_.finish(std::move(record), cases_.make(job));
  }

  void finish(const MadeJob& made, CaseResult result) {
    CaseRecord record = cases_.record(made.job, made.one);
    record.result = std::move(result);
    book_.finish(std::move(record), made.one);
  }

  void show() {
    const double every = ::isatty(STDERR_FILENO) == 1 ? 0.25 : between_lines_.seconds();
    if (shown_.seconds() < every) return;
    shown_ = Stopwatch();
    between_lines_.shown();
    const CampaignReport& report = book_.report();
    const double seconds = watch_.seconds();
    const double rate = static_cast<double>(report.cases() - report.resumed) / seconds;
    double eta = options_.budget_s > 0 ? options_.budget_s - seconds : 1e18;
    if (options_.count > 0 && rate > 0)
      eta = std::min(eta, static_cast<double>(queue_.left()) / rate);
    char text[256];
    std::snprintf(text, sizeof text,
                  "%lld cases, %.1f/s, %lld failed, %zu of %zu pairs met, %.0f s left",
                  static_cast<long long>(report.cases()), rate,
                  static_cast<long long>(report.failures()), report.distribution.pairs_met(),
                  Distribution::pairs_that_can_meet(), std::clamp(eta, 0.0, 1e9));
    progress_.show(text);
  }

  const CampaignOptions options_;
  CampaignBook book_;
  StateFolder state_;
  CampaignCases cases_;
  CampaignJobs jobs_;
  CampaignQueue queue_;
  Progress progress_;
  Stopwatch watch_, shown_;
  LineInterval between_lines_;
  std::optional<Stopwatch> since_signal_;
  std::map<Job, Pending> pending_;
  std::vector<Slot> slots_;
};

}  // namespace

CampaignReport run_campaign(const CampaignOptions& options) {
  // Before a log is made: an empty one would have to be removed by hand before the next try.
  StateFolder::require_usable(options.log);
  return Campaign(options).run();
}

}  // namespace lockstep
