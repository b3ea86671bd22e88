#include "harness/judge/compared_run.h"

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "harness/case/counters_json.h"
#include "harness/case/guard.h"
#include "harness/case/schedules.h"
#include "harness/checker/hazard.h"
#include "harness/judge/eager_judge.h"
#include "harness/judge/seen_difference.h"
#include "harness/judge/shards.h"
#include "kernels/core/at.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// Opens a GPU for bf16 or fp8 only if its tensor cores compute the products that the oracle models.
std::unique_ptr<Backend> open_judged(const Scenario& scenario, const RunOptions& options,
                                     SimOptions sim) {
  // Each process simulates a device with an order of its own.
  if (options.ranks != nullptr)
    sim.seed += 0x9E3779B97F4A7C15u * static_cast<std::uint64_t>(options.ranks->first());
  auto backend =
      open_backend(options.device, sim, options.ranks != nullptr ? options.ranks->gpu : 0);
  if (options.device == "cuda" && scenario.numerics.front() != Numerics::fp32)
    once_a_process(guard_tensor_cores, *backend);
  if (options.device == "cuda" && scenario.numerics.front() == Numerics::fp8)
    once_a_process(guard_fp8, *backend);
  return backend;
}

std::optional<ObserverList> watch(Observer* judge, Observer* watcher) {
  if (watcher == nullptr) return {};
  return ObserverList(judge != nullptr ? std::vector<Observer*>{judge, watcher}
                                       : std::vector<Observer*>{watcher});
}

}  // namespace

ComparedRun::ComparedRun(const Scenario& scenario, const DataSource& data,
                         const RunOptions& options, const SimOptions& sim, Compared compared,
                         Observer* observer)
    : scenario_(scenario),
      data_(data),
      options_(options),
      compared_(compared),
      counters_(ranks_of_run(scenario)),
      views_(counters_.size()),
      injector_(injector_for(scenario.model.pattern, options.planted.engine)),
      watched_(watch(observer, options.watcher)),
      device_(open_judged(scenario, options, sim), watched_ ? &*watched_ : observer,
              pressure_of(scenario), injector_.get()) {
  forget_seen_difference();
  const bool by_eager_run = is_judged_by_an_eager_run(scenario, options.device);
  const Reference reference = by_eager_run ? Reference::eager_run : Reference::oracle;
  for (int r = 0; r < ranks_of_run(scenario); ++r)
    comparisons_.push_back(std::make_unique<Comparison>(scenario, r, reference));
}

void ComparedRun::on_ranks(const std::function<void(Rank&)>& body) {
  const auto options = [this](int rank) -> TrainerOptions {
    StepListener* listener =
        compared_ == Compared::every_pass ? at(comparisons_, rank).get() : nullptr;
    return {.dry_run_ledger = !options_.bits_alone, .listener = listener};
  };
  with_trainers(
      device_, scenario_, data_, options,
      [&](ThreadRank& engine) {
        const Trainer& trainer = engine.trainer;
        const auto read_back = [&](std::span<const StoredValues> list) {
          return read(trainer, list);
        };
        require_the_whole_state(engine);
        Rank rank{*this,
                  engine,
                  *at(comparisons_, engine.number()),
                  {read_back, trainer.parameters(), writers_told()}};
        body(rank);
      },
      options_.ranks);
}

// The reader's place is that of the pass that has just ended.
std::function<std::string(const StoredValues&)> ComparedRun::writers_told() {
  if (watch_ == nullptr) return {};
  return [this](const StoredValues& values) {
    const auto size = static_cast<std::int64_t>(values.bytes());
    const OperandBytes bytes{Access::in, const_cast<void*>(values.data), 1, size, size};
    return watch_->writers(bytes, device_.place);
  };
}

// The part "look" marks these reads as the harness's, not the engine's.
std::vector<std::vector<float>> ComparedRun::read(const Trainer& trainer,
                                                  std::span<const StoredValues> list) {
  const char* part = std::exchange(device_.place.part, kLook);
  std::vector<std::vector<float>> seen = trainer.read(list);
  device_.place.part = part;
  return seen;
}

// The program does not know what the harness waits for here.
template <class Call>
auto ComparedRun::aside(const Call& call) {
  const int layer = std::exchange(device_.place.layer, kLookLayer);
  auto seen = call();
  device_.place.layer = layer;
  return seen;
}

std::string ComparedRun::digest(const Trainer& trainer) {
  return aside([&] { return trainer.weight_digest(); });
}

std::string ComparedRun::scaling_digest(const Trainer& trainer) {
  return aside([&] { return trainer.scaling_digest(); });
}

void ComparedRun::require_the_whole_state(ThreadRank& rank) {
  // A process sees only its own ranks, so this is checked only where one process has them all.
  if (options_.ranks != nullptr && options_.ranks->apart()) return;
  at(views_, rank.number()) = rank.trainer.parameters();
  rank.communicator.all_gather_object("");
  if (rank.number() > 0) return;
  const std::string gap = uncovered(parameter_table(scenario_), with_sharding(scenario_), views_,
                                    scenario_.parallel.pipeline, expert_ranks(scenario_));
  if (!gap.empty()) throw EngineViolation(JudgeKind::vacuous, gap);
}

bool ComparedRun::Rank::holds_so_far() {
  const char* own = comparison.found().first() ? "differs" : "";
  const std::vector<std::string> said = engine.communicator.all_gather_object(own);
  const bool differs = std::any_of(said.begin(), said.end(),
                                   [](const std::string& words) { return !words.empty(); });
  run.differs_ |= differs;
  return !differs;
}

void ComparedRun::count(const ThreadRank& rank) {
  const Counters counted = aside([&] { return rank.trainer.counters(); });
  const std::string own = boost::json::serialize(to_json(counted));
  const std::vector<std::string> said = rank.communicator.all_gather_object(own);
  for (std::size_t r = 0; r < said.size(); ++r) {
    counters_[r] = counters_from_json(boost::json::parse(said[r]).as_object());
  }
}

std::optional<Difference> ComparedRun::first() const {
  const FirstOfRank* earliest = nullptr;
  for (const auto& one : comparisons_) {
    const FirstOfRank& found = one->found();
    if (found.first() && (earliest == nullptr || found.order() < earliest->order()))
      earliest = &found;
  }
  return earliest == nullptr ? std::nullopt : earliest->first();
}

}  // namespace lockstep
