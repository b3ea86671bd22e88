#include "harness/process_case.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "harness/device_choice.h"
#include "harness/launch.h"
#include "harness/result_json.h"

namespace lockstep {
namespace {

CaseResult result_of(const std::string& path, int rank, const Scenario& scenario, const RunOptions& options) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!text.str().empty()) return result_from_json(boost::json::parse(text.str()));
  CaseResult lost = unjudged_case(scenario, options);
  lost.verdict = Verdict::broken;
  lost.judge = "watchdog";
  lost.reason = "rank " + std::to_string(rank) + " ended without a result";
  return lost;
}

int weight(const CaseResult& result) {
  const bool of_others = result.judge == kElsewhere || result.judge == "watchdog";
  if (result.verdict == Verdict::violated && result.first_difference) return 4;
  if (result.verdict == Verdict::violated && !of_others) return 3;
  if (result.verdict != Verdict::holds && !of_others) return 2;
  return result.verdict == Verdict::holds ? 0 : 1;
}

}  // namespace

bool wants_processes(const Scenario& scenario) {
  return scenario.parallel.data > 1 &&
         (scenario.parallel.transport == Transport::shm || scenario.parallel.transport == Transport::nccl);
}

// Of a step, what belongs to a microbatch comes before what is of all of them.
CaseResult worst(std::vector<CaseResult> ranks) {
  const auto place = [](const FirstDifference& where) { return std::pair(where.step, where.microbatch < 0); };
  const auto comes_first = [&](const CaseResult& a, const CaseResult& b) {
    if (weight(a) != weight(b)) return weight(a) > weight(b);
    return a.first_difference && b.first_difference && place(*a.first_difference) < place(*b.first_difference);
  };
  return std::move(*std::min_element(ranks.begin(), ranks.end(), comes_first));
}

CaseResult run_case_in_processes(const Scenario& scenario, const RunOptions& options) {
  const bool on_gpus = options.device == "cuda", over_nccl = scenario.parallel.transport == Transport::nccl;
  const bool full = scenario.cuda_graph.impl == GraphImpl::full_iteration;
  if (on_gpus ? !over_nccl && full : over_nccl) {
    CaseResult result = unjudged_case(scenario, options);
    result.verdict = Verdict::broken;
    result.judge = "device";
    result.reason = lacking(scenario, options.device);
    return result;
  }
  const RunFolder folder;
  const auto path = [&](int rank) { return folder.path() + "/" + std::to_string(rank); };
  launch_here(scenario, options.deadline_s, folder, [&](const RanksHere& ranks) {
    RunOptions own = options;
    own.ranks = &ranks;
    const CaseResult result = run_case(scenario, own);
    std::ofstream(path(ranks.first())) << boost::json::serialize(to_json(result));
    return ExitStatus::held;
  });
  std::vector<CaseResult> results;
  for (int rank = 0; rank < scenario.parallel.data; ++rank) {
    results.push_back(result_of(path(rank), rank, scenario, options));
  }
  return worst(std::move(results));
}

}  // namespace lockstep
