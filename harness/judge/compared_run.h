// One run of the engine on a device of its own: all ranks, each compared with the reference.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/case/run_options.h"
#include "harness/case/verdict.h"
#include "harness/inject/fault_injector.h"
#include "harness/judge/comparison.h"
#include "harness/judge/observer_list.h"
#include "harness/judge/op_watch.h"
#include "harness/judge/thread_ranks.h"

namespace lockstep {

class ComparedRun {
 public:
  ComparedRun(const Scenario& scenario, const DataSource& data, const RunOptions& options,
              const SimOptions& sim, Compared compared, Observer* observer);

  struct Rank {
    ComparedRun& run;
    ThreadRank& engine;
    Comparison& comparison;
    ComparedEngine readback;

    // Waits for all ranks, and returns to all of them whether no rank has found a difference so
    // far.
    bool holds_so_far();
  };
  // Runs `body` on every rank. If the ranks together do not hold the whole state, that is a
  // violation of judge "vacuous".
  void on_ranks(const std::function<void(Rank&)>& body);

  // Returns the first difference of all ranks in program order: calls of a step, then ranks.
  std::optional<Difference> first() const;
  // Returns whether any rank has found a difference, wherever it is.
  bool differs() const { return differs_; }
  // The counters of each rank at its end, for which every rank calls count().
  const std::vector<Counters>& counters() const { return counters_; }
  void count(const ThreadRank& rank);
  std::string digest(const Trainer& trainer);  // Every rank calls it.
  std::string scaling_digest(const Trainer& trainer);
  Device& device() { return device_; }
  void set_watch(const OpWatch* watch) { watch_ = watch; }  // Before on_ranks().
  // How often the planted device fault took effect.
  std::int64_t triggered() const { return injector_ ? injector_->triggered() : 0; }

 private:
  std::function<std::string(const StoredValues&)> writers_told();
  template <class Call>
  auto aside(const Call& call);
  std::vector<std::vector<float>> read(const Trainer& trainer, std::span<const StoredValues> list);
  void require_the_whole_state(ThreadRank& rank);

  const Scenario& scenario_;
  const DataSource& data_;
  const RunOptions& options_;
  Compared compared_;
  std::vector<std::unique_ptr<Comparison>> comparisons_;
  std::vector<Counters> counters_;
  std::vector<std::vector<ParameterView>> views_;
  bool differs_ = false;
  const OpWatch* watch_ = nullptr;
  std::unique_ptr<FaultInjector> injector_;
  std::optional<ObserverList> watched_;
  Device device_;
};

}  // namespace lockstep
