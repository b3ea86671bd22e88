#include "harness/run/rank_teams.h"

#include <boost/json.hpp>
#include <cstdio>
#include <functional>
#include <optional>
#include <utility>

#include "engine/comm/nccl_communicator.h"
#include "harness/base/stopwatch.h"
#include "harness/report/result_json.h"
#include "harness/run/worker_place.h"
#include "kernels/core/at.h"
#include "scenarios/pass_order.h"

namespace lockstep {

TeamKey team_of(const Scenario& scenario) {
  return {ranks_of_run(scenario), scenario.parallel.transport == Transport::nccl,
          scenario.fsdp.reduction == Reduction::nccl};
}

// One case on the team.
class RankTeams::Round {
 public:
  Round(std::vector<std::unique_ptr<RequestWorker>>& ranks, const RunOptions& options,
        std::function<void(int rank)> tell_lost)
      : ranks_(ranks),
        options_(options),
        tell_lost_(std::move(tell_lost)),
        reports_(ranks.size()),
        done_(ranks.size(), false) {}

  std::vector<RankReport> run(const std::string& request) {
    for (const auto& one : ranks_) one->ask(request);
    std::vector<RequestWorker*> workers;
    for (const auto& one : ranks_) workers.push_back(one.get());
    while (!all_are_done()) {
      RequestWorker::listen(workers, 100);
      if (options_.progress && at(ranks_, 0)->phase() != phase_)
        options_.progress(phase_ = at(ranks_, 0)->phase());
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        if (done_[rank]) continue;
        look_at(rank);
        if (done_[rank]) workers[rank] = nullptr;
      }
      if (since_failure_ && since_failure_->seconds() > options_.deadline_s + kNoticeSeconds)
        stop_those_left();
    }
    return std::move(reports_);
  }
  bool failed() const { return since_failure_.has_value(); }

 private:
  bool all_are_done() const {
    for (const bool done : done_) {
      if (!done) return false;
    }
    return true;
  }

  void look_at(std::size_t rank) {
    RankReport& report = reports_[rank];
    if (const std::optional<std::string> answer = ranks_[rank]->take_answer()) {
      const boost::json::value value = boost::json::parse(*answer);
      report.result = boost::json::value_to<std::string>(value.at("result"));
      report.end.status = value.at("status").to_number<int>();
    } else if (!ranks_[rank]->is_open()) {
      const ChildEnd end = ranks_[rank]->end();
      report.end = {.signal = end.signal, .status = end.status};
      tell_lost_(static_cast<int>(rank));
    } else {
      return;
    }
    finish(rank);
  }

  // Its words are passed on at once: others may wait for it until the watchdog comes.
  void finish(std::size_t rank) {
    reports_[rank].said = ranks_[rank]->said();
    std::fputs(reports_[rank].said.c_str(), stderr);
    done_[rank] = true;
    if (reports_[rank].result.empty() && !since_failure_) since_failure_.emplace();
  }

  void stop_those_left() {
    std::fputs("lockstep: some ranks did not notice that another failed\n", stderr);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (done_[rank]) continue;
      const ChildEnd end = ranks_[rank]->end();
      reports_[rank].end = {.signal = end.signal, .status = end.status, .stopped = end.signal != 0};
      finish(rank);
    }
  }

  std::vector<std::unique_ptr<RequestWorker>>& ranks_;
  const RunOptions& options_;
  const std::function<void(int rank)> tell_lost_;
  std::vector<RankReport> reports_;
  std::vector<bool> done_;
  std::string phase_;
  std::optional<Stopwatch> since_failure_;
};

std::vector<RankReport> RankTeams::run(const Scenario& scenario, const RunOptions& options,
                                       const RunFolder& folder) {
  if (ranks_.empty() || key_ != team_of(scenario)) make_team(scenario, options.deadline_s);
  const SharedSegment segment = meeting_in(folder, scenario);
  Round round(ranks_, options, [&](int rank) { tell_lost(rank, folder, scenario); });
  std::vector<RankReport> reports = round.run(
      boost::json::serialize(boost::json::object{{"number", number_}, {"folder", folder.path()}}));
  bool sound = !round.failed();
  for (const RankReport& one : reports)
    sound = sound && result_from_json(boost::json::parse(one.result)).verdict == Verdict::holds;
  if (!sound) ranks_.clear();
  return reports;
}

void RankTeams::make_team(const Scenario& scenario, double deadline_s) {
  ranks_.clear();
  key_ = team_of(scenario);
  for (int rank = 0; rank < ranks_of_run(scenario); ++rank) {
    const auto answer = [this, rank, deadline_s](const std::string& request, const auto& phase) {
      return this->answer(rank, deadline_s, request, phase);
    };
    const auto begin = [] {
      leave_core();  // Ranks run at the same time.
      keep_freed_memory();
      keep_nccl_communicators();
    };
    ranks_.push_back(std::make_unique<RequestWorker>(WorkerSetup{begin, answer}));
  }
}

std::string RankTeams::answer(int rank, double deadline_s, const std::string& request,
                              const std::function<void(const std::string&)>& phase) const {
  const boost::json::value asked = boost::json::parse(request);
  const auto number = asked.at("number").to_number<std::size_t>();
  const auto folder = boost::json::value_to<std::string>(asked.at("folder"));
  std::string result;
  const auto judged = [&](const LocalRanks& ranks) {
    result = boost::json::serialize(to_json(cases_.judge(number, ranks, phase)));
    return ExitStatus::held;
  };
  const ExitStatus status = run_as_rank(rank, folder, cases_.scenario(number), deadline_s, judged);
  std::fflush(stderr);
  return boost::json::serialize(
      boost::json::object{{"result", result}, {"status", static_cast<int>(status)}});
}

}  // namespace lockstep
