#include "harness/campaign/cases.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "harness/report/result_json.h"
#include "harness/run/multi_process_case.h"
#include "harness/run/run_case.h"
#include "harness/run/suite.h"
#include "harness/run/worker.h"

namespace lockstep {

CampaignCase CampaignCases::make(const Job& job) const {
  if (!job.corpus)
    return make_case(options_.seed, job.index, options_.profile, options_.with,
                     options_.like.get());
  CampaignCase one;
  one.scenario = corpus_[static_cast<std::size_t>(job.index)].planned.scenario;
  return one;
}

std::optional<CaseResult> CampaignCases::decided(const Job& job, const CampaignCase& one) const {
  if (!job.corpus) return lacking_machine(one);
  return corpus_[static_cast<std::size_t>(job.index)].planned.decided;
}

// A case that needs more of the machine than there is, such as GPUs for four ranks, or memory for
// the sizes of a user's file. Other cases are small and need nothing.
std::optional<CaseResult> CampaignCases::lacking_machine(const CampaignCase& one) const {
  if (!options_.with.any() && !options_.like) return {};
  if (one.invalid) return {};
  PlannedCase planned;
  planned.scenario = one.scenario;
  planned.named = false;  // It is skipped, not broken.
  decide_what_is_lacking(planned, options_.run.device);
  give_up_for_memory(planned, options_.run.device);
  return planned.decided;
}

CaseRecord CampaignCases::record(const Job& job, const CampaignCase& one) const {
  CaseRecord record;
  record.seed = one.seed;
  if (job.corpus) {
    record.corpus_file = corpus_[static_cast<std::size_t>(job.index)].file;
    return record;
  }
  record.index = job.index;
  if (one.invalid) {
    record.rule = one.invalid->rule;
  } else {
    record.traits = features_of(one.scenario);
  }
  return record;
}

RunOptions CampaignCases::run_options(const Job& job) const {
  RunOptions run = options_.run;
  if (options_.plant_case >= 0 && (job.corpus || job.index != options_.plant_case))
    run.planted.engine.clear();
  // Ranks that miss one report it before the watchdog ends them all.
  run.deadline_s = std::min(run.deadline_s, options_.timeout_s / 2);
  return run;
}

CaseResult CampaignCases::judged(const Job& job, const CampaignCase& one, CaseResult result) const {
  return job.corpus ? judged_by_expectation(one.scenario, std::move(result)) : result;
}

bool CampaignCases::starts_ranks_on_gpus(const CampaignCase& one) const {
  return options_.run.device == "cuda" && !one.invalid && wants_processes(one.scenario);
}

CaseResult CampaignCases::death(const Job& job, const CampaignCase& one,
                                const ChildEnd& end) const {
  CaseResult result;
  result.name = one.scenario.name;
  result.numerics = "-";
  if (!one.invalid) result = unjudged_case(one.scenario, run_options(job));
  result.device.kind = options_.run.device;
  judge_death(result, end, options_.timeout_s);
  const bool killed_by_the_kernel = end.signal == SIGKILL && !end.timed_out;
  const bool out_of_memory = end.last_words.find("std::bad_alloc") != std::string::npos;
  if (killed_by_the_kernel || out_of_memory) result.judge = JudgeKind::memory;
  return judged(job, one, std::move(result));
}

}  // namespace lockstep
