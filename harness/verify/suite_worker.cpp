#include "harness/verify/suite_worker.h"

#include "harness/report/result_json.h"
#include "harness/run/device_choice.h"
#include "harness/run/worker_place.h"
#include "kernels/core/at.h"

namespace lockstep {

SuiteWorker::SuiteWorker(const std::vector<PlannedCase>& cases, const RunOptions& run,
                         const CaseJudge& judge)
    : cases_(cases),
      run_(run),
      judge_(judge),
      teams_({.scenario = [this](std::size_t number) -> const Scenario& {
                return at(cases_, number).scenario;
              },
              .judge =
                  [this](std::size_t number, const LocalRanks& ranks, const auto& phase) {
                    RunOptions own = run_;
                    own.ranks = &ranks;
                    own.progress = phase;
                    return judge_(at(cases_, number).scenario, own);
                  }}) {}

WorkerSetup SuiteWorker::setup(int number, Opens opens) {
  const auto begin = [this, number, opens] {
    keep_freed_memory();
    if (run_.device == "cuda" && opens == Opens::one_gpu) take_gpu(number, gpus_here());
  };
  const auto answer = [this](const std::string& request, const auto& phase) {
    return this->answer(request, phase);
  };
  return {.begin = begin, .answer = answer, .echo = true};
}

std::string SuiteWorker::answer(const std::string& request,
                                const std::function<void(const std::string&)>& phase) {
  phase("before its first run");
  const std::size_t number = std::stoul(request);
  RunOptions own = run_;
  own.progress = phase;
  own.teams = &teams_;
  teams_.begin(number);
  return boost::json::serialize(to_json(judge_(at(cases_, number).scenario, own)));
}

}  // namespace lockstep
