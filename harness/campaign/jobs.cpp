#include "harness/campaign/jobs.h"

#include <sys/resource.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <sstream>

#include "harness/base/subprocess.h"
#include "harness/judge/runner.h"
#include "harness/report/result_json.h"
#include "harness/run/device_choice.h"
#include "harness/run/rank_teams.h"
#include "harness/run/run_case.h"
#include "harness/run/worker.h"
#include "harness/run/worker_place.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "oracle/oracle.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

void settle(int number, const CampaignOptions& options, bool starts_ranks) {
  keep_freed_memory();
  if (options.times) TimeSpent::begin();
  if (options.run.device == "cuda") {
    if (!starts_ranks) take_gpu(number, gpus_here());
    return;
  }
  take_core(number, options.jobs);
  if (options.memory_limit > 0) {  // CUDA maps far more address space than it uses.
    const rlim_t bytes = static_cast<rlim_t>(options.memory_limit) << 20;
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_AS, &limit);
  }
}

// Weights after the last step, and the bits of every loss.
std::string oracle_digest(const Scenario& scenario, const RunOptions& run) {
  const oracle::Options options{.numerics = scenario.numerics.front(),
                                .keep_activations = false,
                                .keep_gradients = false,
                                .mutation = run.planted.oracle};
  oracle::Oracle oracle(scenario, options);
  const auto data = open_data(scenario);
  std::string digest;
  for (std::int64_t step = 0; step < scenario.training.steps; ++step) {
    const float loss = oracle.step(step, data->training(step)).loss;
    digest += std::to_string(std::bit_cast<std::uint32_t>(loss)) + " ";
  }
  return digest + oracle.weight_digest();
}

Job request_job(const std::string& request) {
  std::istringstream words(request);
  Job job;
  words >> job.corpus >> job.again >> job.index;
  return job;
}

}  // namespace

std::string request_of(const Job& job) {
  return std::to_string(job.corpus) + " " + std::to_string(job.again) + " " +
         std::to_string(job.index);
}

FurtherRun run_of(const std::string& answer) {
  const boost::json::value value = boost::json::parse(answer);
  FurtherRun run{result_from_json(value.at("result")),
                 boost::json::value_to<std::string>(value.at("oracle"))};
  if (const boost::json::value* times = value.as_object().if_contains("times"))
    run.times = times_from_json(times->as_object());
  return run;
}

// The processes of ranks make the case themselves, from its job.
class CampaignJobs::Ranks {
 public:
  explicit Ranks(const CampaignCases& cases)
      : cases_(cases),
        teams_(
            {.scenario = [this](std::size_t number) -> const Scenario& { return scenario(number); },
             .judge =
                 [this](std::size_t number, const LocalRanks& ranks, const auto& phase) {
                   RunOptions own = cases_.run_options(job_of(number));
                   own.ranks = &ranks;
                   own.progress = phase;
                   plant_fault(own.planted.engine);
                   CaseResult result = judge_case(scenario(number), own);
                   plant_fault("");
                   return result;
                 }}) {}
  RankTeams& of(const Job& job) {
    teams_.begin(number_of(job));
    return teams_;
  }

 private:
  static std::size_t number_of(const Job& job) {
    return std::size_t{2} * job.index + (job.corpus ? 1 : 0);
  }
  static Job job_of(std::size_t number) {
    return {.index = static_cast<std::int64_t>(number / 2), .corpus = number % 2 != 0};
  }
  const Scenario& scenario(std::size_t number) {
    if (number_ != number) {
      scenario_ = cases_.make(job_of(number)).scenario;
      number_ = number;
    }
    return scenario_;
  }

  const CampaignCases& cases_;
  RankTeams teams_;
  std::optional<std::size_t> number_;  // The case whose scenario is kept.
  Scenario scenario_;
};

WorkerSetup CampaignJobs::worker(int number, const std::string& state_folder,
                                 bool starts_ranks) const {
  const std::string file = state_folder + "/worker-" + std::to_string(number) + ".yaml";
  const auto ranks = std::make_shared<Ranks>(cases_);
  return {[this, number, starts_ranks] { settle(number, options_, starts_ranks); },
          [this, file, ranks](const std::string& request,
                              const std::function<void(const std::string&)>& phase) {
            return answer(request_job(request), file, *ranks, phase);
          }};
}

std::string CampaignJobs::answer(const Job& job, const std::string& file, Ranks& ranks,
                                 const std::function<void(const std::string&)>& phase) const {
  phase("making the case");
  const CampaignCase one = cases_.make(job);
  // Written to disk before it runs, so that the case survives any crash, even of the driver.
  std::ofstream out(file, std::ios::trunc);
  out << (one.invalid ? one.invalid->text : to_yaml(one.scenario)) << std::flush;
  FurtherRun made;
  if (!out) {
    made.result.verdict = Verdict::broken;
    made.result.judge = JudgeKind::state;
    made.result.reason = file + ": cannot write: " + std::strerror(errno);
  } else {
    run_here(job, one, ranks, phase, made);
  }
  boost::json::object answer{{"result", to_json(made.result)}, {"oracle", made.oracle}};
  if (options_.times) answer["times"] = to_json(TimeSpent::take());
  return boost::json::serialize(answer);
}

void CampaignJobs::run_here(const Job& job, const CampaignCase& one, Ranks& ranks,
                            const std::function<void(const std::string&)>& phase,
                            FurtherRun& made) const try {
  phase("running");
  made.result = run(job, one, ranks);
  if (!job.again || one.invalid) return;
  phase("running the oracle by itself");
  made.oracle = oracle_digest(one.scenario, options_.run);
} catch (const std::bad_alloc&) {
  made.result.name = one.scenario.name;
  made.result.verdict = Verdict::broken;
  made.result.judge = JudgeKind::memory;
  made.result.reason = "out of host memory";
}

CaseResult CampaignJobs::run(const Job& job, const CampaignCase& one, Ranks& ranks) const {
  if (one.invalid) return judge_invalid_case(*one.invalid);
  RunOptions run = cases_.run_options(job);
  run.teams = &ranks.of(job);
  tell_running_op_at_abort();
  plant_fault(run.planted.engine);
  if (fault(kCrashFault)) ::raise(SIGSEGV);
  while (fault(kHangFault)) ::pause();
  CaseResult result = run_case(one.scenario, run);
  plant_fault("");
  return cases_.judged(job, one, std::move(result));
}

}  // namespace lockstep
