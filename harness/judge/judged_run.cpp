#include "harness/judge/judged_run.h"

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "harness/case/guard.h"
#include "harness/case/schedules.h"
#include "harness/judge/eager_judge.h"
#include "harness/judge/shards.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// The oracle's products are the model's: another GPU has nothing to be judged by.
std::unique_ptr<Backend> open_judged(const Scenario& scenario, const RunOptions& options, SimOptions sim) {
  // Devices of several processes go their own ways.
  if (options.ranks != nullptr) sim.seed += 0x9E3779B97F4A7C15u * static_cast<std::uint64_t>(options.ranks->first());
  auto backend = open_backend(options.device, sim, options.ranks != nullptr ? options.ranks->gpu : 0);
  if (options.device == "cuda" && scenario.numerics.front() != Numerics::fp32)
    once_a_process(guard_tensor_cores, *backend);
  return backend;
}

std::optional<Tee> watch(Observer* judge, Observer* watcher) {
  if (watcher == nullptr) return {};
  return Tee(judge != nullptr ? std::vector<Observer*>{judge, watcher} : std::vector<Observer*>{watcher});
}

}  // namespace

JudgedRun::JudgedRun(const Scenario& scenario, const DataSource& data, const RunOptions& options, const SimOptions& sim,
                     bool listened, Observer* observer)
    : scenario_(scenario),
      data_(data),
      options_(options),
      listened_(listened),
      counters_(static_cast<std::size_t>(scenario.parallel.data)),
      views_(counters_.size()),
      injector_(injector_for(scenario.model.pattern, options.fault)),
      watched_(watch(observer, options.watcher)),
      device_(open_judged(scenario, options, sim), watched_ ? &*watched_ : observer, pressure_of(scenario),
              injector_.get()) {
  for (int r = 0; r < scenario.parallel.data; ++r)
    comparisons_.push_back(
        std::make_unique<Comparison>(scenario, r, is_judged_by_an_eager_run(scenario, options.device)));
}

void JudgedRun::on_ranks(const std::function<void(Rank&)>& body) {
  const auto options = [this](int rank) -> TrainerOptions {
    StepListener* listener = listened_ ? comparisons_[static_cast<std::size_t>(rank)].get() : nullptr;
    return {.dry_run_ledger = !options_.bits_alone, .listener = listener};
  };
  with_trainers(
      device_, scenario_, data_, options,
      [&](VirtualRank& engine) {
        Comparison& comparison = *comparisons_[static_cast<std::size_t>(engine.number())];
        const Trainer& trainer = engine.trainer;
        comparison.attach([&](std::span<const StoredValues> list) { return look(trainer, list); },
                          trainer.parameters());
        require_the_whole_state(engine);
        Rank rank{*this, engine, comparison};
        body(rank);
      },
      options_.ranks);
}

// Its place tells that nobody but the harness reads here.
std::vector<std::vector<float>> JudgedRun::look(const Trainer& trainer, std::span<const StoredValues> list) {
  const char* part = std::exchange(device_.place.part, "look");
  std::vector<std::vector<float>> seen = trainer.read(list);
  device_.place.part = part;
  return seen;
}

void JudgedRun::require_the_whole_state(VirtualRank& rank) {
  if (options_.ranks != nullptr && options_.ranks->apart()) return;  // Judged where all ranks are in one process.
  views_[static_cast<std::size_t>(rank.number())] = rank.trainer.parameters();
  rank.communicator.all_gather_object("");
  if (rank.number() > 0) return;
  const std::string gap = uncovered(parameter_table(scenario_), with_sharding(scenario_), views_);
  if (!gap.empty()) throw EngineViolation("vacuous", gap);
}

bool JudgedRun::Rank::holds_so_far() {
  const std::vector<std::string> said = engine.communicator.all_gather_object(comparison.first() ? "differs" : "");
  const bool differs = std::any_of(said.begin(), said.end(), [](const std::string& words) { return !words.empty(); });
  run.differs_ |= differs;
  return !differs;
}

void JudgedRun::count(const VirtualRank& rank) {
  const std::string own = boost::json::serialize(boost::json::value_from(rank.trainer.counters()));
  const std::vector<std::string> said = rank.communicator.all_gather_object(own);
  for (std::size_t r = 0; r < said.size(); ++r) {
    counters_[r] = boost::json::value_to<Counters>(boost::json::parse(said[r]));
  }
}

std::optional<Difference> JudgedRun::first() const {
  const Comparison* earliest = nullptr;
  for (const auto& one : comparisons_) {
    if (one->first() && (earliest == nullptr || one->order() < earliest->order())) earliest = one.get();
  }
  return earliest == nullptr ? std::nullopt : earliest->first();
}

}  // namespace lockstep
