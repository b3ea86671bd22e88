// Processes of ranks that stay from one case to the next with as many ranks, so that a case costs
// them no start: on a GPU the start of a process takes longer than most cases.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "harness/base/run_folder.h"
#include "harness/case/run_options.h"
#include "harness/case/verdict.h"
#include "harness/judge/local_ranks.h"
#include "harness/run/launch.h"
#include "harness/run/request_worker.h"

namespace lockstep {

// What a rank's process made of a case.
struct RankReport {
  std::string result;  // JSON; "" where the process ended, or failed, before it had judged.
  RankEnd end;
  std::string said;  // On its stderr.
};

// Cases that the same processes can run, one after the other: ranks that use the same device, with
// the same variables of NCCL, which it may read once a process.
using TeamKey = std::tuple<std::int64_t, bool, bool>;
TeamKey team_of(const Scenario& scenario);

class RankTeams {
 public:
  struct Cases {
    std::function<const Scenario&(std::size_t number)> scenario;
    // Judges a case as one rank, in that rank's process; `phase` reports its progress.
    std::function<CaseResult(std::size_t number, const LocalRanks& ranks,
                             const std::function<void(const std::string&)>& phase)>
        judge;
  };
  explicit RankTeams(Cases cases) : cases_(std::move(cases)) {}

  // The number of the case that comes next; its ranks' processes find it by that.
  void begin(std::size_t number) { number_ = number; }
  // Runs that case. The ranks meet in the folder. A team in which something failed is not used
  // again.
  std::vector<RankReport> run(const Scenario& scenario, const RunOptions& options,
                              const RunFolder& folder);

 private:
  class Round;
  void make_team(const Scenario& scenario, double deadline_s);
  std::string answer(int rank, double deadline_s, const std::string& request,
                     const std::function<void(const std::string&)>& phase) const;

  const Cases cases_;
  std::size_t number_ = 0;
  TeamKey key_;
  std::vector<std::unique_ptr<RequestWorker>> ranks_;
};

}  // namespace lockstep
