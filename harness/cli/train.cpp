// `lockstep train FILE`: the engine alone, or with --oracle the oracle alone.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/whole_file.h"
#include "engine/train/trainer.h"
#include "harness/base/interrupt_guard.h"
#include "harness/base/options.h"
#include "harness/base/progress.h"
#include "harness/base/stopwatch.h"
#include "harness/case/schedules.h"
#include "harness/cli/command_files.h"
#include "harness/cli/commands.h"
#include "harness/cli/write_reports.h"
#include "harness/report/report.h"
#include "harness/report/result_json.h"
#include "harness/run/checkpoint_lock.h"
#include "harness/run/device_choice.h"
#include "harness/run/failure.h"
#include "harness/run/launch.h"
#include "harness/run/memory_check.h"
#include "harness/run/refusal.h"
#include "harness/run/rendezvous_address.h"
#include "oracle/oracle.h"
#include "scenarios/documents/layout.h"
#include "scenarios/documents/raw_documents.h"
#include "scenarios/io/reader.h"
#include "scenarios/pass_order.h"
#include "scenarios/schema/words.h"

namespace lockstep {
namespace {

// The file's scenario with what the options replace; still legal and built.
Scenario scenario_of(const Options& options) {
  const ReadResult read = read_scenario_file(options.word());
  if (!read.ok() && read.rule() != "L00") throw refusal(read.errors);
  Scenario scenario = read.scenario;
  if (scenario.numerics.size() > 1 && !options.has("quiet")) {
    std::fprintf(stderr, "lockstep: %s lists several numerics: trains in %s, the first\n",
                 options.word().c_str(), to_text(scenario.numerics.front()));
  }
  scenario.numerics.resize(1);
  // Fewer steps are the file's run, ended early: who goes on from its checkpoint has the bits of
  // the whole run.
  if (const std::int64_t steps = options.number("steps"); steps > scenario.training.steps) {
    // A decay that ended with the file's last step ends with the new one.
    std::int64_t& decay = scenario.training.optimizer.decay_steps;
    if (decay == scenario.training.steps) decay = steps;
    scenario.training.steps = steps;
  }
  if (options.has("graph")) {
    scenario.cuda_graph.impl = value_of<GraphImpl>(options.text("graph"));
    if (scenario.cuda_graph.impl != GraphImpl::partial) scenario.cuda_graph.modules.clear();
  }
  // A checkpoint is of these bytes.
  if (scenario.data.digest.empty()) scenario.data.digest = read.data_digest;
  if (const auto errors = check_legality(scenario); !errors.empty()) throw refusal(errors);
  if (const auto errors = check_built(scenario); !errors.empty()) throw refusal(errors);
  return scenario;
}

// Up to which step this command trains.
std::int64_t last_step(const Options& options, const Scenario& scenario) {
  const std::int64_t asked = options.number("steps");
  return asked > 0 ? asked : scenario.training.steps;
}

bool digest_is_due(const Options& options, std::int64_t done, std::int64_t steps) {
  const std::int64_t every = options.number("digest-every");
  return every > 0 && done % every == 0 && done < steps;
}

// The grace of a rank that is a process of this one: it ends within a step, and its parent waits.
constexpr double kRankGraceSeconds = 0.5;

// Prints steps as they come: losses and tokens a second to stderr, digests to stdout. Keeps them
// for the reports.
class Log {
 public:
  Log(const Options& options, const Scenario& scenario, DeviceInfo device, InterruptGuard& guard)
      : options_(options),
        scenario_(scenario),
        device_(std::move(device)),
        guard_(guard),
        progress_(options.has("quiet")),
        steps_(last_step(options, scenario)) {}

  void step(std::int64_t done, float loss, std::int64_t tokens) {
    const auto held = guard_.lock();
    tokens_ += tokens;
    last_ = loss;
    list_.push_back(boost::json::object{{"step", done}, {"loss", loss}, {"tokens", tokens}});
    char line[160];
    std::snprintf(line, sizeof line, "step %lld/%lld  loss %.6f  %.0f tokens/s",
                  static_cast<long long>(done), static_cast<long long>(steps_),
                  static_cast<double>(loss), static_cast<double>(tokens_) / watch_.seconds());
    progress_.show(line);
  }
  void evaluation(std::int64_t done, float loss) {
    progress_.clear();
    std::printf("step %lld  evaluation loss %.9g\n", static_cast<long long>(done),
                static_cast<double>(loss));
    std::fflush(stdout);
  }
  // `scaling`: of fp8's scaling state, "" without one.
  void digest(std::int64_t done, const std::string& digest, const std::string& scaling) {
    progress_.clear();
    {
      const auto held = guard_.lock();
      digest_ = digest;
      scaling_ = scaling;
    }
    std::printf("step %lld  loss %.9g  weights %s%s%s\n", static_cast<long long>(done),
                static_cast<double>(last_), digest.c_str(), scaling.empty() ? "" : "  scaling ",
                scaling.c_str());
    std::fflush(stdout);
  }
  void end(double entropy) {
    progress_.clear();
    std::printf("loss %.6f nats a token, unigram entropy %.6f: %s\n", static_cast<double>(last_),
                entropy, static_cast<double>(last_) < entropy ? "below" : "not below");
    std::fprintf(stderr, "%lld tokens in %.1f s\n", static_cast<long long>(tokens_),
                 watch_.seconds());
  }
  // Nothing is judged: a run that came to its end holds. `counters` are of the first rank.
  void report(const Counters& counters, bool interrupted) const {
    CaseResult result;
    result.name = scenario_.name;
    result.numerics = to_text(scenario_.numerics.front());
    result.counters = counters;
    result.seconds = watch_.seconds();
    boost::json::object run = run_to_json({result}, device_, result.seconds);
    if (interrupted) run["interrupted"] = true;
    run["training"] = history();
    write_reports(options_, junit({result}, interrupted), run);
  }
  // A run that failed keeps its steps up to there.
  void report(const Failure& failure) const {
    boost::json::object run = run_to_json({}, device_, watch_.seconds());
    run["error"] = to_json(failure);
    run["training"] = history();
    write_reports(options_, junit({to_result(failure)}), run);
  }

 private:
  boost::json::object history() const {
    boost::json::object found{{"steps", list_}, {"weights", digest_}};
    if (!scaling_.empty()) found["scaling"] = scaling_;
    return found;
  }

  const Options& options_;
  const Scenario& scenario_;
  const DeviceInfo device_;
  InterruptGuard& guard_;
  boost::json::array list_;
  std::string digest_, scaling_;
  Progress progress_;
  std::int64_t steps_, tokens_ = 0;
  float last_ = 0;
  Stopwatch watch_;
};

// False where a signal came before the last step.
bool train_by_oracle(const Options& options, const Scenario& scenario, const DataSource& data,
                     Log& log) {
  oracle::Oracle oracle(scenario, {.numerics = scenario.numerics.front(),
                                   .keep_activations = false,
                                   .keep_gradients = false,
                                   .mutation = ""});
  const std::int64_t every = scenario.training.eval_every, steps = last_step(options, scenario);
  for (std::int64_t done = 1; done <= steps; ++done) {
    if (Interrupts::came()) return false;
    const StepData documents = data.training(done - 1);
    log.step(done, oracle.step(done - 1, documents).loss, tokens_of(documents));
    if (digest_is_due(options, done, steps))
      log.digest(done, oracle.weight_digest(), oracle.scaling_digest());
    if (every > 0 && done % every == 0)
      log.evaluation(done, oracle.evaluate(done - 1, data.evaluation(done - 1)).loss);
  }
  log.digest(steps, oracle.weight_digest(), oracle.scaling_digest());
  return true;
}

// After which step the ranks of a process end because of a signal: all after the same one, since
// each waits for the others within a step. Ranks of several processes go on until their guard ends
// them.
class LastStep {
 public:
  explicit LastStep(bool several_processes) : several_processes_(several_processes) {}
  // A rank asks before each step.
  bool is_done(std::int64_t done) {
    if (several_processes_) return false;
    const std::lock_guard lock(mutex_);
    if (!last_ && Interrupts::came()) last_ = std::max(begun_, done);
    if (last_ && done >= *last_) return early_ = true;
    begun_ = std::max(begun_, done + 1);
    return false;
  }
  bool is_early() const { return early_; }

 private:
  const bool several_processes_;
  std::mutex mutex_;
  std::int64_t begun_ = 0;  // The last step that any rank has begun.
  std::optional<std::int64_t> last_;
  bool early_ = false;
};

void save_within_the_step(const Options& options, Trainer& trainer, std::int64_t microbatches) {
  const std::int64_t every = options.number("checkpoint-within");
  for (std::int64_t m = trainer.microbatches_done() + 1; every > 0 && m < microbatches; ++m) {
    if (m % every != 0) continue;
    trainer.accumulate(m);
    trainer.save(options.text("checkpoint"));
  }
}

// A rank trains; the first one speaks.
void train_rank(const Options& options, const Scenario& scenario, Trainer& trainer, Log* log,
                LastStep& last) {
  const std::int64_t steps = last_step(options, scenario);
  const std::string checkpoint = options.text("checkpoint");
  const std::int64_t every = options.number("checkpoint-every");
  if (options.has("resume")) trainer.load(options.text("resume"));
  if (trainer.steps_done() >= steps) {
    throw RequestError(std::to_string(trainer.steps_done()) +
                       " steps are done already; --steps asks for more");
  }
  const auto say_digest = [&] {
    // Every rank has a part in them.
    const std::string digest = trainer.weight_digest(), scaling = trainer.scaling_digest();
    if (log != nullptr) log->digest(trainer.steps_done(), digest, scaling);
  };
  while (trainer.steps_done() < steps && !last.is_done(trainer.steps_done())) {
    save_within_the_step(options, trainer, scenario.training.microbatches_at(trainer.steps_done()));
    const StepResult result = trainer.step();
    const std::int64_t done = trainer.steps_done();
    if (!std::isfinite(result.loss))
      throw WorldError("the loss of step " + std::to_string(done) + " is not finite");
    if (log != nullptr) log->step(done, result.loss, result.tokens);
    if (digest_is_due(options, done, steps)) say_digest();
    if (trainer.evaluation_is_due()) {
      const float loss = trainer.evaluate().loss;
      if (log != nullptr) log->evaluation(done, loss);
    }
    if (every > 0 && done % every == 0) trainer.save(checkpoint);
  }
  say_digest();
  if (!checkpoint.empty()) trainer.save(checkpoint);
}

// At once, not after hours of training. A checkpoint takes the place of the one before, or of a
// link to it, by a rename.
void require_place_for_checkpoint(const std::string& checkpoint) {
  const std::filesystem::path folder = std::filesystem::absolute(checkpoint).parent_path();
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw WorldError(checkpoint + ": cannot be written there: " + std::strerror(errno));
  }
  if (std::filesystem::exists(checkpoint) && !std::filesystem::is_regular_file(checkpoint)) {
    throw WorldError(checkpoint + ": is not a regular file");
  }
  if (!std::filesystem::exists(checkpoint) || std::filesystem::is_empty(checkpoint)) return;
  try {
    const CheckpointFile before(checkpoint);
  } catch (const std::runtime_error& error) {
    throw OutputClash("--checkpoint would overwrite a file that is none of its own: " +
                      std::string(error.what()));
  }
}

ExitStatus reported(Log& log, const DataSource& data, const Counters& counters, bool interrupted,
                    InterruptGuard& guard) {
  guard.take_over();
  log.end(data.unigram_entropy());
  log.report(counters, interrupted);
  if (!interrupted) return ExitStatus::held;
  say_interrupted();
  return ExitStatus::gave_up;
}

// The ranks of this process.
ExitStatus train_here(const Options& options, const Scenario& scenario, const DataSource& data,
                      const std::string& kind, const LocalRanks& ranks, InterruptGuard& guard) {
  if (scenario.offload.captured && ranks_of_run(scenario) == 1) leave_two_channels();
  Counters counters;  // Counters of the first rank.
  Device device(
      open_backend(kind, sim_options(scenario, scenario.checker.schedule.seed), ranks.gpu));
  Log log(options, scenario, device.info(), guard);
  LastStep last(ranks.apart());
  const InterruptGuard::AtEnd at_end(guard, [&] {
    if (ranks.first() == 0) log.report({}, true);
    if (options.has("checkpoint")) remove_temporaries_of(options.text("checkpoint"), true);
  });
  try {
    ranks.run(device, [&](Communicator& communicator) {
      Trainer trainer(
          device, scenario, data,
          {.dry_run_ledger = false, .listener = nullptr, .communicator = &communicator});
      train_rank(options, scenario, trainer, communicator.rank() == 0 ? &log : nullptr, last);
      if (communicator.rank() == 0) counters = trainer.counters();
    });
  } catch (...) {
    const Failure failure = failure_at_hand();
    guard.take_over();
    try {
      if (ranks.first() == 0) log.report(failure);
    } catch (const std::exception&) {  // The failure itself is told.
    }
    throw;
  }
  if (ranks.first() != 0) return ExitStatus::held;
  return reported(log, data, counters, last.is_early(), guard);
}

// Absent without a checkpoint, and for the ranks of a launcher but the first, which has it for all.
std::unique_ptr<CheckpointLock> lock_of_checkpoint(const Options& options,
                                                   const Scenario& scenario) {
  if (!options.has("checkpoint")) return nullptr;
  if (ranks_of_run(scenario) > 1) {
    const std::optional<LaunchedRank> launched = launched_here();
    if (launched && launched->rank != 0) return nullptr;
  }
  return std::make_unique<CheckpointLock>(options.text("checkpoint"));
}

ExitStatus train_by_engine(const Options& options, const Scenario& scenario, const DataSource& data,
                           InterruptGuard& guard) {
  for (const char* option : {"checkpoint-every", "checkpoint-within"}) {
    if (options.number(option) == 0 || options.has("checkpoint")) continue;
    throw RequestError(std::string("--") + option + " needs --checkpoint");
  }
  // The rest of a step may be too few microbatches for an order of chunks on several stages.
  const bool cuts_steps = options.number("checkpoint-within") > 0;
  if (cuts_steps && scenario.parallel.pipeline > 1 && scenario.parallel.chunks > 1)
    throw RequestError("--checkpoint-within needs parallel.pipeline 1 or parallel.chunks 1");
  if (options.has("checkpoint")) {
    require_place_for_checkpoint(options.text("checkpoint"));
    remove_temporaries_of(options.text("checkpoint"), false);
  }
  const std::unique_ptr<CheckpointLock> lock = lock_of_checkpoint(options, scenario);
  const InterruptGuard::AtEnd without_the_lock(guard, [&] {
    if (lock) lock->remove();
  });
  const std::string kind = choose_device(options.text("device"));
  if (!options.has("any-size")) {
    MemoryUse use = memory_use(scenario, kind);
    use.reference = false;
    // The launcher's other ranks may be elsewhere.
    if (ranks_of_run(scenario) > 1 && launched_here()) use.ranks = 1;
    require_memory(scenario, use);
  }
  return launch(scenario, launch_options(options, kind), [&](const LocalRanks& ranks) {
    std::optional<InterruptGuard> of_rank;
    if (!guard.is_of_this_process())
      of_rank.emplace(kRankGraceSeconds, InterruptGuard::Voice::silent);
    return train_here(options, scenario, data, kind, ranks, of_rank ? *of_rank : guard);
  });
}

}  // namespace

Options train_options() {
  Options options("train", "FILE", "Trains with the engine alone on the scenario's documents.", 1);
  options.device().reports();
  options.number("steps",
                 "optimizer steps in all, fewer or more than the file says (a decay to its last "
                 "step then ends there); 0: as many",
                 0, 0, 1'000'000);
  options.text("checkpoint", "write the state to this file at the end");
  options.number("checkpoint-every", "and after every n-th step; 0: at the end only", 0, 0);
  options.number("checkpoint-within",
                 "and within a step after every n-th microbatch of a rank; 0: not", 0, 0);
  options.text("resume", "continue from this checkpoint, bit for bit");
  options.number("digest-every",
                 "print a digest of all weights after every n-th step; 0: at the end only", 0, 0);
  options.choice("graph", "none, partial or full_iteration instead of the file's cuda_graph.impl",
                 words<GraphImpl>());
  options.flag("oracle", "run the oracle instead of the engine, for its losses and digests");
  options.launched().any_size();
  options.example("lockstep train mine.yaml --steps 100 --checkpoint run",
                  "a hundred steps, saved at the end; again, with --resume run, goes on");
  return options;
}

ExitStatus train_command(const Words& words) {
  Options options = train_options();
  if (!options.parse(words)) return ExitStatus::held;
  InterruptGuard guard;
  const InterruptGuard::AtEnd unless_there_is_more(guard, without_results(words));
  const CommandFiles files(options, {"checkpoint"});
  if (options.has("oracle") && (options.has("checkpoint") || options.has("resume")))
    throw RequestError("--oracle keeps no checkpoints");
  const Scenario scenario = scenario_of(options);
  files.reads_data_of(scenario);
  const std::string resume = options.text("resume"), checkpoint = options.text("checkpoint");
  std::error_code unknown;  // A run may continue in the checkpoint that it began from.
  if (!resume.empty() && !std::filesystem::equivalent(resume, checkpoint, unknown))
    files.reads("--resume", resume);
  const auto data = open_data(scenario);
  if (!options.has("oracle")) return train_by_engine(options, scenario, *data, guard);
  if (!options.has("any-size"))
    require_memory(scenario, {.engine_on_host = false, .reference = true, .ranks = 1});
  DeviceInfo device;
  device.kind = "oracle";
  Log log(options, scenario, device, guard);
  const InterruptGuard::AtEnd at_end(guard, [&] { log.report({}, true); });
  const bool whole = train_by_oracle(options, scenario, *data, log);
  return reported(log, *data, {}, !whole, guard);
}

}  // namespace lockstep
