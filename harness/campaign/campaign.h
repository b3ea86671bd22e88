// `lockstep fuzz`: random scenarios on worker processes, until a number of cases or a time is
// reached.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/base/errors.h"
#include "harness/campaign/corpus.h"
#include "harness/campaign/record.h"
#include "harness/generate/likeness.h"
#include "harness/generate/outside.h"
#include "harness/judge/runner.h"

namespace lockstep {

struct CampaignOptions {
  RunOptions run;
  std::uint64_t seed = 0;
  std::string profile = "small";
  Outside with;  // The cases must reach it; a campaign that never did fails.
  std::shared_ptr<const Likeness> like;  // The cases are drawn around it; null for none.
  std::string like_file;
  std::int64_t count = 0;  // Cases of all shards together; 0: until the budget ends.
  double budget_s = 0;     // 0: until the count is reached.
  std::int64_t shard = 0, shards = 1;
  int jobs = 1;
  double timeout_s = 60;          // For one case.
  std::int64_t memory_limit = 0;  // MiB of address space per worker on sim; 0: none.
  int reruns = 5;                 // For a failing case.
  std::int64_t stop_after = 0;    // Failing cases; 0: never.
  std::int64_t only_case = -1;    // For the random ones.
  std::int64_t plant_case = -1;   // The fault is planted in this case alone.
  std::string corpus, log;        // "" for none.
  bool resume = false, quiet = false;
  bool times = false;     // Count where the time of the workers goes.
  bool coverage = false;  // Print how often each feature was drawn.
};

// Failures of one class.
struct FailureClass {
  CaseRecord first;
  std::int64_t cases = 0;
  // The file of the corpus with a case of it, "" for none. The first case need not be that one: it
  // may lie in another file of the corpus.
  std::string kept = {};
};

struct CampaignReport {
  std::uint64_t seed = 0;
  DeviceInfo device;
  std::int64_t held = 0, violated = 0, broken = 0, gave_up = 0, skipped = 0, near_legal = 0;
  std::int64_t resumed = 0;  // For these, from the log.
  double seconds = 0;
  // The seconds of the cases that workers ran, and the parts of these; if they are counted.
  double seconds_of_cases = 0;
  std::int64_t timed_cases = 0;
  TimesByKind times;
  std::vector<FailureClass> classes;
  Distribution distribution;
  std::map<std::string, std::int64_t> refused;  // Almost legal cases by the rule that they break.
  // By the place of outside_names(): the random cases that had it and were judged.
  std::vector<std::int64_t> reached = std::vector<std::int64_t>(outside_names().size());
  // The judged cases that had the planted fault, and those of them that met it or failed.
  std::int64_t planted = 0, planted_met = 0;
  bool ended_early = false;  // Budget or a signal came before the count.
  bool interrupted = false;  // It was a signal.
  std::string why_early;
  std::vector<UnreadableFile> unreadable;  // Files of the corpus.
  std::int64_t cases() const { return held + violated + broken + gave_up + skipped; }
  std::int64_t failures() const { return violated + broken + gave_up; }
  void add(const CaseRecord& record);
  void add(const TimesByKind& of_case, double its_seconds);
};

// Throws RequestError and WorldError; what is in the log by then stays there.
CampaignReport run_campaign(const CampaignOptions& options);

std::string campaign_text(const CampaignOptions& options, const CampaignReport& report);
boost::json::object campaign_json(const CampaignOptions& options, const CampaignReport& report);
std::string campaign_junit(const CampaignReport& report);
// The names in `options.with` that no case reached, though the campaign ran to its end; "" for
// none.
std::string never_reached(const CampaignOptions& options, const CampaignReport& report);
// Returns whether a fault was planted and no case met it, though the campaign ran to its end.
bool fault_was_never_met(const CampaignOptions& options, const CampaignReport& report);
ExitStatus campaign_status(const CampaignOptions& options, const CampaignReport& report);

}  // namespace lockstep
