#include "harness/run/multi_process_case.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "harness/base/errors.h"
#include "harness/base/subprocess.h"
#include "harness/inject/device_fault.h"
#include "harness/judge/runner.h"
#include "harness/report/result_json.h"
#include "harness/run/device_choice.h"
#include "harness/run/launch.h"
#include "harness/run/rank_teams.h"
#include "harness/run/worker.h"
#include "kernels/core/at.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/pass_order.h"

namespace lockstep {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The output of a rank's process is kept from here on, so that its last words can be reported.
void say_to(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0 || ::dup2(file, STDERR_FILENO) < 0)
    throw WorldError(path + ": " + std::strerror(errno));
  ::close(file);
}

// A rank that was stopped because it had not noticed another's end is a hang; any other that died
// has judged, or crashed.
CaseResult lost_rank(const Scenario& scenario, const RunOptions& options, const RankEnd& end,
                     const std::string& said) {
  CaseResult lost = unjudged_case(scenario, options);
  if (end.stopped) {
    lost.verdict = Verdict::broken;
    lost.judge = JudgeKind::watchdog;
    lost.reason = "did not notice that another rank failed";
    return lost;
  }
  ChildEnd child;
  child.signal = end.signal;
  child.status = end.status;
  child.last_words = last_words(said);
  judge_death(lost, child, 0);
  return lost;
}

int weight(const CaseResult& result) {
  const bool of_others =
      result.judge == JudgeKind::remote_failure || result.judge == JudgeKind::watchdog;
  if (result.verdict == Verdict::violated && result.first_difference) return 4;
  if (result.verdict == Verdict::violated && !of_others) return 3;
  if (result.verdict != Verdict::holds && !of_others) return 2;
  return result.verdict == Verdict::holds ? 0 : 1;
}

}  // namespace

bool wants_processes(const Scenario& scenario) {
  return ranks_of_run(scenario) > 1 && (scenario.parallel.transport == Transport::shm ||
                                        scenario.parallel.transport == Transport::nccl);
}

// Within a step, results of a microbatch come before results of all of them.
CaseResult worst(std::vector<CaseResult> ranks) {
  const auto place = [](const FirstDifference& where) {
    return std::pair(where.step, where.microbatch < 0);
  };
  const auto comes_first = [&](const CaseResult& a, const CaseResult& b) {
    if (weight(a) != weight(b)) return weight(a) > weight(b);
    return a.first_difference && b.first_difference &&
           place(*a.first_difference) < place(*b.first_difference);
  };
  return std::move(*std::min_element(ranks.begin(), ranks.end(), comes_first));
}

namespace {

CaseResult broken_case(const Scenario& scenario, const RunOptions& options, JudgeKind judge,
                       const std::string& reason) {
  CaseResult result = unjudged_case(scenario, options);
  result.verdict = Verdict::broken;
  result.judge = judge;
  result.reason = reason;
  return result;
}

// The reports of processes that end with the case.
std::vector<RankReport> reports_of_new_ranks(const Scenario& scenario, const RunOptions& options,
                                             const RunFolder& folder) {
  const auto path = [&](int rank) { return folder.path() + "/" + std::to_string(rank); };
  const auto said = [&](int rank) { return path(rank) + ".said"; };
  const auto judge = [&](const LocalRanks& ranks) {
    say_to(said(ranks.first()));
    RunOptions own = options;
    own.ranks = &ranks;
    const CaseResult result = judge_case(scenario, own);
    std::ofstream(path(ranks.first())) << boost::json::serialize(to_json(result));
    return ExitStatus::held;
  };
  std::vector<RankReport> reports(ranks_of_run(scenario));
  // Its words are passed on at once: others may wait for it until the watchdog comes.
  const auto ended = [&](int rank, const RankEnd& end) {
    at(reports, rank) = {text_of(path(rank)), end, text_of(said(rank))};
    std::fputs(at(reports, rank).said.c_str(), stderr);
  };
  launch_here(scenario, options.deadline_s, folder, judge, ended);
  return reports;
}

CaseResult judged(const Scenario& scenario, const RunOptions& options,
                  const std::vector<RankReport>& reports) {
  std::vector<CaseResult> results;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const RankReport& one = reports[rank];
    if (!one.result.empty()) {
      results.push_back(result_from_json(boost::json::parse(one.result)));
      continue;
    }
    results.push_back(lost_rank(scenario, options, one.end, one.said));
    results.back().reason = "rank " + std::to_string(rank) + ": " + results.back().reason;
  }
  // A planted fault may be met by a rank whose result is not the one that is told.
  std::int64_t met = 0;
  for (const CaseResult& one : results) {
    const auto found = one.counters.find(Counter::planted_fault_met);
    if (found != one.counters.end()) met = std::max(met, found->second);
  }
  CaseResult told = worst(std::move(results));
  if (!options.planted.engine.empty()) told.counters[Counter::planted_fault_met] = met;
  return told;
}

}  // namespace

CaseResult run_case_in_processes(const Scenario& scenario, const RunOptions& options) {
  const bool on_gpus = options.device == "cuda",
             over_nccl = scenario.parallel.transport == Transport::nccl;
  if (on_gpus ? !over_nccl && captures_calls(scenario) : over_nccl)
    return broken_case(scenario, options, JudgeKind::device, lacking(scenario, options.device));
  std::optional<RunFolder> folder;
  try {
    folder.emplace();
  } catch (const WorldError& error) {
    return broken_case(scenario, options, JudgeKind::disk, error.what());
  }
  return judged(scenario, options,
                options.teams != nullptr ? options.teams->run(scenario, options, *folder)
                                         : reports_of_new_ranks(scenario, options, *folder));
}

}  // namespace lockstep
