// The parent of a campaign: gives cases to workers, watches them, and writes down what came of each.
#include "harness/campaign.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "harness/campaign_jobs.h"
#include "harness/campaign_log.h"
#include "harness/progress.h"
#include "harness/stopwatch.h"
#include "harness/version.h"
#include "scenarios/reader.h"

namespace lockstep {
namespace {

namespace json = boost::json;

constexpr int kCasesPerProcess = 200;  // On sim: what a case leaves behind reaches this many others at most.

volatile std::sig_atomic_t interrupted = 0;
extern "C" void note_interrupt(int) { interrupted = 1; }

// Ctrl-C ends a campaign as a budget does; a pipe that nobody reads is a failed write.
class Signals {
 public:
  Signals() {
    interrupted = 0;
    int_ = std::signal(SIGINT, note_interrupt);
    term_ = std::signal(SIGTERM, note_interrupt);
    pipe_ = std::signal(SIGPIPE, SIG_IGN);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() {
    std::signal(SIGINT, int_);
    std::signal(SIGTERM, term_);
    std::signal(SIGPIPE, pipe_);
  }

 private:
  void (*int_)(int);
  void (*term_)(int);
  void (*pipe_)(int);
};

// Where workers keep the case that they run: beside the log, so that it is found after the worst.
class StateFolder {
 public:
  explicit StateFolder(const std::string& log) {
    namespace fs = std::filesystem;
    std::error_code error;
    if (!log.empty() && (fs::is_regular_file(log, error) || !fs::exists(log, error))) {
      path_ = log + ".state";
      fs::create_directories(path_, error);
      if (error) throw WorldError(path_ + ": cannot make this folder: " + error.message());
      return;
    }
    std::string name = (fs::temp_directory_path() / "lockstep-fuzz-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw WorldError(name + ": cannot make this folder");
    path_ = name;
  }
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;
  ~StateFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Slot {
  std::unique_ptr<CampaignWorker> worker;
  std::optional<Job> job;
  Stopwatch since;
};

// A failing case on its way to a verdict.
struct Pending {
  CaseRecord record;
  std::vector<FurtherRun> further;
};

class Campaign {
 public:
  explicit Campaign(const CampaignOptions& options)
      : options_(options),
        corpus_(options.corpus.empty() ? nullptr : std::make_unique<Corpus>(options.corpus)),
        log_(options.log.empty() ? nullptr : std::make_unique<CampaignLog>(options.log, options.resume)),
        state_(options.log),
        jobs_(options_, corpus_cases()),
        progress_(options.quiet),
        slots_(static_cast<std::size_t>(options.jobs)) {
    report_.seed = options_.seed;
    report_.device.kind = options_.run.device;
  }

  CampaignReport run() {
    const Signals signals;
    remember();
    while (give_jobs()) {
      listen();
      show();
    }
    progress_.clear();
    report_.seconds = watch_.seconds();
    return report_;
  }

 private:
  // The header: what decides the cases. The corpus is that of the beginning, so that what this campaign finds is not
  // replayed by it.
  std::vector<CorpusCase> corpus_cases() {
    const bool resumes = log_ && !log_->header().is_null();
    std::vector<std::string> files;
    if (corpus_) files = corpus_->files();
    json::object campaign{{"seed", std::to_string(options_.seed)},
                          {"shard", std::to_string(options_.shard) + "/" + std::to_string(options_.shards)},
                          {"profile", options_.profile},
                          {"device", options_.run.device},
                          {"plant", options_.run.fault},
                          {"plant_case", options_.plant_case},
                          {"mutate_oracle", options_.run.mutation},
                          {"corpus", options_.corpus},
                          {"revision", revision()}};
    if (resumes) {
      const json::object& there = log_->header().at("campaign").as_object();
      if (there.contains("corpus_files")) {
        files = json::value_to<std::vector<std::string>>(there.at("corpus_files"));
      }
    }
    campaign["corpus_files"] = json::value_from(files);
    if (log_) {
      log_->begin({{"tool", "lockstep"}, {"version", version()}, {"revision", revision()}, {"campaign", campaign}});
    }
    return corpus_ ? corpus_->read(files) : std::vector<CorpusCase>{};
  }

  void remember() {
    if (!log_) return;
    for (const json::value& line : log_->done()) {
      const CaseRecord record = record_from_json(line);
      if (record.index >= 0) {
        done_.insert(record.index);
      } else {
        done_corpus_.insert({record.corpus_file, record.result.numerics});
      }
      report_.add(record);
      ++report_.resumed;
    }
  }

  // --- What runs next.

  std::optional<Job> next_job() {
    if (!again_.empty()) {
      const Job job = again_.front();
      again_.pop_front();
      return job;
    }
    if (over()) return {};
    while (next_corpus_ < std::ssize(jobs_.corpus())) {
      const Job job{.index = next_corpus_++, .corpus = true};
      const CorpusCase& one = jobs_.corpus()[static_cast<std::size_t>(job.index)];
      const bool mine = job.index % options_.shards == options_.shard && options_.only_case < 0;
      if (!mine || done_corpus_.contains({one.file, numerics_of(one)})) continue;
      if (!one.planned.decided) return job;
      finish(jobs_.record(job, jobs_.make(job)), *one.planned.decided);  // Refused as expected, or skipped.
    }
    while (true) {
      const std::int64_t index =
          options_.only_case < 0 ? options_.shard + next_++ * options_.shards : next_++ + options_.only_case;
      if (options_.only_case >= 0 && index != options_.only_case) return {};
      if (options_.only_case < 0 && options_.count > 0 && index >= options_.count) return {};
      if (!done_.contains(index)) return Job{.index = index};
    }
  }

  static std::string numerics_of(const CorpusCase& one) {
    return one.planned.decided ? one.planned.decided->numerics : to_text(one.planned.scenario.numerics.front());
  }

  bool over() {
    if (options_.stop_after > 0 && report_.failures() >= options_.stop_after) return true;
    if (interrupted != 0) return end_early("it was interrupted");
    const bool spent = options_.budget_s > 0 && watch_.seconds() >= options_.budget_s;
    return spent && (options_.count > 0 && left() > 0 ? end_early("the budget ended first") : true);
  }
  bool end_early(const char* why) {
    report_.ended_early = true;
    report_.why_early = why;
    return true;
  }
  // Random cases of this shard that were not begun.
  std::int64_t left() const {
    if (options_.only_case >= 0) return next_ == 0;
    const std::int64_t mine = (options_.count - options_.shard + options_.shards - 1) / options_.shards;
    return std::max<std::int64_t>(0, mine - next_);
  }

  // False when nothing runs and nothing is left to run.
  bool give_jobs() {
    bool running = false;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (!slot.job) {
        const std::optional<Job> job = next_job();
        if (!job) continue;
        give(slot, static_cast<int>(i), *job);
      }
      running = true;
    }
    return running;
  }

  void give(Slot& slot, int number, const Job& job) {
    const bool worn = slot.worker && slot.worker->served() >= kCasesPerProcess && options_.run.device == "sim";
    if (slot.worker && (worn || (job.again && slot.worker->served() > 0))) slot.worker.reset();
    if (!slot.worker) slot.worker = std::make_unique<CampaignWorker>(jobs_.worker(number, state_.path()));
    slot.job = job;
    slot.since = Stopwatch();
    slot.worker->ask(CampaignJobs::request(job));
  }

  // --- What comes back.

  void listen() {
    std::vector<pollfd> waiting;
    for (const Slot& slot : slots_) {
      const bool alive = slot.worker != nullptr;
      waiting.push_back({alive ? slot.worker->answers() : -1, POLLIN, 0});
      waiting.push_back({alive ? slot.worker->words() : -1, POLLIN, 0});
    }
    ::poll(waiting.data(), waiting.size(), 100);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (!slot.worker) continue;
      if (waiting[2 * i + 1].revents != 0) slot.worker->read_words();
      const bool open = waiting[2 * i].revents == 0 || slot.worker->read_answers();
      if (slot.job) {
        heard(slot, open);
      } else if (!open) {
        slot.worker.reset();
      }
    }
  }

  void heard(Slot& slot, bool open) {
    if (const std::optional<std::string> answer = slot.worker->take_answer()) {
      FurtherRun run = CampaignJobs::answer(*answer);
      if (run.result.judge == "state") throw WorldError(run.result.reason);
      took(slot, std::move(run));
    } else if (!open) {
      const Job job = *slot.job;
      const CampaignCase one = jobs_.make(job);
      took(slot, {jobs_.death(job, one, slot.worker->end()), ""});
    } else if (slot.since.seconds() > options_.timeout_s) {
      hung(slot);
    }
  }

  void hung(Slot& slot) {
    const std::string phase = slot.worker->phase(), where = slot.worker->where();
    ChildEnd end = slot.worker->end();
    end.timed_out = true;
    end.last_words = phase + (where.empty() ? "" : ", in " + where);
    took(slot, {jobs_.death(*slot.job, jobs_.make(*slot.job), end), ""});
  }

  void took(Slot& slot, FurtherRun run) {
    const Job job = *std::exchange(slot.job, std::nullopt);
    if (run.result.seconds == 0) run.result.seconds = slot.since.seconds();
    if (!run.result.device.name.empty()) report_.device = run.result.device;
    // A process in which something failed judges nothing else.
    if (fails(run.result)) slot.worker.reset();
    if (job.again) return took_again(job, std::move(run));
    const CampaignCase one = jobs_.make(job);
    CaseRecord record = jobs_.record(job, one);
    if (run.result.token.empty() && !one.near) {  // It had no memory left to say what it was.
      const CaseResult named = unjudged_case(one.scenario, jobs_.run_options(job));
      run.result.numerics = named.numerics;
      run.result.token = named.token;
      run.result.replay = named.replay;
    }
    if (!fails(run.result) || options_.reruns == 0) return finish(std::move(record), std::move(run.result));
    record.result = std::move(run.result);
    pending_[job].record = std::move(record);
    Job more = job;
    more.again = true;
    for (int i = 0; i < options_.reruns; ++i) again_.push_back(more);
  }

  void took_again(Job job, FurtherRun run) {
    job.again = false;
    Pending& pending = pending_.at(job);
    pending.further.push_back(std::move(run));
    if (static_cast<int>(pending.further.size()) < options_.reruns) return;
    CaseRecord record = std::move(pending.record);
    CaseResult result = record.result;
    classify(record, pending.further);
    result = record.result;
    pending_.erase(job);
    finish(std::move(record), std::move(result));
  }

  // The file first, then the line of the log: a campaign that is killed between them runs the case again and finds
  // the file there.
  void finish(CaseRecord record, CaseResult result) {
    record.result = std::move(result);
    if (fails(record.result)) {
      if (record.kind.empty()) classify(record, {});
      keep(record);
    }
    if (log_) log_->append(to_json(record), fails(record.result));
    report_.add(record);
  }

  void keep(CaseRecord& record) {
    if (!corpus_ || record.index < 0 || record.kind == "oracle unstable") return;
    const CampaignCase one = jobs_.make({.index = record.index});
    record.file = one.near ? "refused/" + record.rule + "-" + Corpus::file_of(record.failure_class)
                           : Corpus::file_of(record.failure_class);
    corpus_->keep(record.file, one.near ? one.near->text : explained(record, one));
  }

  std::string explained(const CaseRecord& record, const CampaignCase& one) const {
    std::string reason;
    for (const char c : record.result.reason) reason += c >= ' ' && c <= '~' ? c : ' ';
    return "# Found by lockstep fuzz --seed " + std::to_string(options_.seed) + " --profile " + options_.profile +
           ", case " + std::to_string(record.index) + " (" + version() + ", " + revision() + "), on " +
           options_.run.device + ".\n# " + to_text(record.result.verdict) + ", " + record.result.judge + ": " + reason +
           "\n# " + record.kind + ": " + std::to_string(record.failed) + " of " + std::to_string(record.runs) +
           " further runs failed.\n# " + record.result.replay + "\n" + to_yaml(one.scenario);
  }

  void show() {
    const double every = ::isatty(STDERR_FILENO) == 1 ? 0.25 : 10;
    if (shown_.seconds() < every) return;
    shown_ = Stopwatch();
    const double seconds = watch_.seconds();
    const double rate = static_cast<double>(report_.cases() - report_.resumed) / seconds;
    double eta = options_.budget_s > 0 ? options_.budget_s - seconds : 1e18;
    if (options_.count > 0 && rate > 0) eta = std::min(eta, static_cast<double>(left()) / rate);
    char text[256];
    std::snprintf(text, sizeof text, "%lld cases, %.1f/s, %lld failed, %zu of %zu pairs met, %.0f s left",
                  static_cast<long long>(report_.cases()), rate, static_cast<long long>(report_.failures()),
                  report_.distribution.pairs_met(), Distribution::pairs_that_can_meet(), std::clamp(eta, 0.0, 1e9));
    progress_.show(text);
  }

  const CampaignOptions options_;
  std::unique_ptr<Corpus> corpus_;
  std::unique_ptr<CampaignLog> log_;
  StateFolder state_;
  CampaignJobs jobs_;
  Progress progress_;
  Stopwatch watch_, shown_;
  CampaignReport report_;

  std::set<std::int64_t> done_;
  std::set<std::pair<std::string, std::string>> done_corpus_;  // File and precision.
  std::int64_t next_ = 0, next_corpus_ = 0;
  std::deque<Job> again_;
  std::map<Job, Pending> pending_;
  std::vector<Slot> slots_;
};

}  // namespace

CampaignReport run_campaign(const CampaignOptions& options) { return Campaign(options).run(); }

}  // namespace lockstep
