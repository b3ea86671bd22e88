#include "harness/bench/checker.h"

#include <algorithm>
#include <vector>

#include "harness/base/stopwatch.h"
#include "harness/bench/median.h"
#include "harness/case/schedules.h"
#include "harness/checker/checker.h"
#include "harness/explore/recorder.h"
#include "harness/judge/observer_list.h"
#include "harness/judge/thread_ranks.h"

namespace lockstep {
namespace {

void train(const Scenario& scenario, const DataSource& data, const std::string& device_kind,
           Observer* observer) {
  Device device(open_backend(device_kind, sim_options(scenario, scenario.checker.schedule.seed)),
                observer, pressure_of(scenario));
  const auto plain = [](int) { return TrainerOptions(); };
  train_to_the_end(device, scenario, data, plain,
                   [](ThreadRank& rank) { rank.trainer.weight_digest(); });
}

void train_checked(const Scenario& scenario, const DataSource& data,
                   const std::string& device_kind) {
  Checker checker;
  if (device_kind == "cuda") return train(scenario, data, device_kind, &checker);
  ProgramRecorder recorder;
  ObserverList both({&checker, &recorder});
  train(scenario, data, device_kind, &both);
  explore(std::move(recorder).finish(), explore_options(scenario));
}

}  // namespace

CheckerCost time_checker(const Scenario& scenario, const std::string& device_kind, int runs) {
  const auto data = open_data(scenario);
  std::vector<double> without, with;
  for (int i = 0; i <= runs; ++i) {
    const Stopwatch plain;
    train(scenario, *data, device_kind, nullptr);
    const double plain_seconds = plain.seconds();
    const Stopwatch checked;
    train_checked(scenario, *data, device_kind);
    if (i == 0) continue;  // Loads code and warms the allocator.
    without.push_back(plain_seconds);
    with.push_back(checked.seconds());
  }
  return {scenario.name, median(without), median(with)};
}

}  // namespace lockstep
