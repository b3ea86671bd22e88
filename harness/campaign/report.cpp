// The report at the end of a campaign.
#include "harness/report/report.h"

#include <algorithm>
#include <cstdio>

#include "harness/base/version.h"
#include "harness/campaign/campaign.h"
#include "harness/generate/traits.h"
#include "harness/report/result_json.h"

namespace lockstep {
namespace {

namespace json = boost::json;

std::string text_of(const char* format, auto... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

long long ll(std::int64_t value) { return static_cast<long long>(value); }

std::string further_runs(const CaseRecord& record) {
  return record.kind + ": " + std::to_string(record.failed) + " of " + std::to_string(record.runs) +
         " further runs failed";
}

std::string class_text(const FailureClass& one) {
  const CaseRecord& first = one.first;
  std::string text = failure_block(first.result);
  text += "  " + further_runs(first) + "; " + std::to_string(one.cases) +
          (one.cases == 1 ? " case" : " cases") + " of this class, first in " +
          (first.index < 0 ? first.corpus_file : "case " + std::to_string(first.index)) + "\n";
  if (!one.kept.empty()) text += "  kept as " + one.kept + "\n";
  return text;
}

// The file of the corpus with a case of the class: kept now, or the one that failed.
const std::string& file_of(const FailureClass& one) {
  return one.kept.empty() ? one.first.corpus_file : one.kept;
}

// The mean case, its largest part first.
std::string times_text(const CampaignReport& report) {
  if (report.timed_cases == 0) return "";
  const double cases = static_cast<double>(report.timed_cases);
  std::vector<std::pair<std::string, TimeOfKind>> kinds(report.times.begin(), report.times.end());
  double rest = report.seconds_of_cases;
  for (const auto& [kind, time] : kinds) rest -= time.seconds;
  kinds.push_back({"all else on the host", {rest, 0}});
  std::stable_sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) {
    return a.second.seconds > b.second.seconds;
  });
  std::string text = text_of("%-34s %9s %6s %9s\n", "a case, in the mean", "ms", "%", "calls");
  for (const auto& [kind, time] : kinds) {
    text += text_of("%-34s %9.2f %6.1f %9.1f\n", kind.c_str(), 1e3 * time.seconds / cases,
                    100 * time.seconds / report.seconds_of_cases,
                    static_cast<double>(time.calls) / cases);
  }
  return text + text_of("%-34s %9.2f\n", "all", 1e3 * report.seconds_of_cases / cases);
}

// How often each key and feature was met in fp8, and each rule in almost legal cases.
std::string fp8_text(const CampaignReport& report) {
  std::string text = text_of("in fp8, of %lld cases, the least first\n",
                             ll(report.distribution.count(static_cast<int>(Trait::fp8))));
  for (const auto& [name, met] : report.distribution.met_in_fp8())
    text += text_of("  %-34s %8lld\n", name.c_str(), ll(met));
  return text;
}
std::string refused_text(const CampaignReport& report) {
  std::string text = "almost legal cases, by the rule that refuses them\n";
  for (const auto& [rule, cases] : report.refused)
    text += text_of("  %-34s %8lld\n", rule.c_str(), ll(cases));
  return report.refused.empty() ? "" : text;
}

std::vector<CaseResult> first_results(const CampaignReport& report) {
  std::vector<CaseResult> results;
  for (const FailureClass& one : report.classes) results.push_back(one.first.result);
  return results;
}

}  // namespace

void CampaignReport::add(const CaseRecord& record) {
  switch (record.result.verdict) {
    case Verdict::holds:
      ++held;
      break;
    case Verdict::violated:
      ++violated;
      break;
    case Verdict::broken:
      ++broken;
      break;
    case Verdict::gave_up:
      ++gave_up;
      break;
    case Verdict::skipped:
      ++skipped;
      break;
  }
  if (!record.rule.empty()) ++near_legal, ++refused[record.rule];
  const bool judged =
      record.result.verdict == Verdict::holds || record.result.verdict == Verdict::violated;
  for (std::size_t i = 0; judged && i < reached.size(); ++i)
    reached[i] += record.traits[static_cast<int>(outside_names()[i].trait)];
  if (record.traits.any()) distribution.add(record.traits);
  const auto met = record.result.counters.find(Counter::planted_fault_met);
  const bool had_the_fault = met != record.result.counters.end();
  planted += had_the_fault;
  // A worker that died counted nothing: it may have died of the fault.
  planted_met += fails(record.result) || (had_the_fault && met->second > 0);
  if (!fails(record.result)) return;
  const auto same = [&](const FailureClass& one) {
    return one.first.failure_class == record.failure_class && one.first.kind == record.kind;
  };
  const auto known = std::find_if(classes.begin(), classes.end(), same);
  if (known == classes.end()) {
    classes.push_back({record, 1, record.file});
  } else {
    ++known->cases;
    if (known->kept.empty()) known->kept = record.file;
  }
}

void CampaignReport::add(const TimesByKind& of_case, double its_seconds) {
  if (of_case.empty()) return;
  ++timed_cases;
  seconds_of_cases += its_seconds;
  for (const auto& [kind, time] : of_case) {
    times[kind].seconds += time.seconds;
    times[kind].calls += time.calls;
  }
}

std::string campaign_text(const CampaignOptions& options, const CampaignReport& report) {
  std::string text;
  for (const FailureClass& one : report.classes) text += class_text(one);
  if (options.coverage) {
    text += report.distribution.table();
    if (options.with.fp8) text += fp8_text(report);
    text += refused_text(report);
  } else if (!options.quiet) {
    text += text_of("%zu of %zu pairs of features met (--coverage, --json and --html list them)\n",
                    report.distribution.pairs_met(), report.distribution.pairs_that_can_meet());
  }
  if (options.times) text += times_text(report);
  const std::int64_t ran = report.cases() - report.resumed;
  text += text_of(
      "seed %llu: %lld cases, %lld held, %lld violated, %lld broken, %lld gave up, %lld skipped; ",
      static_cast<unsigned long long>(options.seed), ll(report.cases()), ll(report.held),
      ll(report.violated), ll(report.broken), ll(report.gave_up), ll(report.skipped));
  text += text_of("%lld near-legal; %zu classes of failures; %lld run in %.1f s, %.1f/s\n",
                  ll(report.near_legal), report.classes.size(), ll(ran), report.seconds,
                  static_cast<double>(ran) / std::max(report.seconds, 1e-9));
  for (std::size_t i = 0; i < report.reached.size(); ++i) {
    if (options.with.*outside_names()[i].asked)
      text += text_of("with %s: %lld cases\n", outside_names()[i].name, ll(report.reached[i]));
  }
  const std::string never = never_reached(options, report);
  if (!never.empty())
    text += "FAIL the campaign is vacuous: no case was judged with " + never + "\n";
  if (fault_was_never_met(options, report))
    text += "FAIL the campaign is vacuous: the planted fault " + options.run.planted.engine +
            " met no place in any case\n";
  text += unreadable_text(report.unreadable);
  if (report.ended_early) text += "not all cases were run: " + report.why_early + "\n";
  return text;
}

json::object campaign_json(const CampaignOptions& options, const CampaignReport& report) {
  json::object whole = run_to_json(first_results(report), report.device, report.seconds);
  whole["summary"] =
      json::object{{"scenarios", report.cases()}, {"held", report.held},
                   {"violated", report.violated}, {"broken", report.broken},
                   {"gave_up", report.gave_up},   {"skipped", report.skipped},
                   {"seconds", report.seconds},   {"near_legal", report.near_legal},
                   {"resumed", report.resumed},   {"ended_early", report.ended_early}};
  if (report.interrupted) whole["interrupted"] = true;
  whole["campaign"] =
      json::object{{"seed", std::to_string(options.seed)},
                   {"profile", options.profile},
                   {"count", options.count},
                   {"shard", std::to_string(options.shard) + "/" + std::to_string(options.shards)},
                   {"with", to_text(options.with)},
                   {"like", options.like_file},
                   {"jobs", options.jobs},
                   {"log", options.log},
                   {"corpus", options.corpus}};
  json::object reached;
  for (std::size_t i = 0; i < report.reached.size(); ++i) {
    if (options.with.*outside_names()[i].asked)
      reached[outside_names()[i].name] = report.reached[i];
  }
  whole["with"] = reached;
  json::array classes;
  for (const FailureClass& one : report.classes) {
    classes.push_back({{"class", one.first.failure_class},
                       {"kind", one.first.kind},
                       {"cases", one.cases},
                       {"first_case", one.first.index},
                       {"failed", one.first.failed},
                       {"runs", one.first.runs},
                       {"file", file_of(one)},
                       {"replay", one.first.result.replay}});
  }
  whole["classes"] = classes;
  if (!options.run.planted.engine.empty()) {
    whole["planted"] = json::object{{"fault", options.run.planted.engine},
                                    {"cases", report.planted},
                                    {"met", report.planted_met}};
  }
  if (!report.unreadable.empty()) whole["unreadable"] = to_json(report.unreadable);
  if (options.times) {
    whole["times"] = json::object{{"cases", report.timed_cases},
                                  {"seconds", report.seconds_of_cases},
                                  {"kinds", to_json(report.times)}};
  }
  whole["distribution"] = report.distribution.to_json();
  json::object refused, in_fp8;
  for (const auto& [rule, cases] : report.refused) refused[rule] = cases;
  whole["refused"] = refused;
  if (!options.with.fp8) return whole;
  for (const auto& [name, met] : report.distribution.met_in_fp8()) in_fp8[name] = met;
  whole["in_fp8"] = in_fp8;
  return whole;
}

std::string campaign_junit(const CampaignReport& report) {
  std::vector<CaseResult> results;
  for (const FailureClass& one : report.classes) {
    CaseResult result = one.first.result;
    // The name of the class is the same each night, that of its first case is not.
    result.name = one.first.failure_class;
    if (one.first.kind != "deterministic") result.name += " (" + one.first.kind + ")";
    result.reason += " (first in " + one.first.result.name + ", " + one.first.result.numerics + ")";
    result.numerics = "campaign";
    results.push_back(std::move(result));
  }
  CaseResult rest;
  rest.name = "random scenarios that held";  // One name for all nights, so that it has a history.
  rest.reason = std::to_string(report.held) + " random scenarios held";
  rest.numerics = "campaign";
  rest.seconds = report.seconds;
  results.push_back(rest);
  return junit(results, report.interrupted);
}

// A single case says nothing of the others, and a campaign that a signal ended of those to come.
std::string never_reached(const CampaignOptions& options, const CampaignReport& report) {
  std::string names;
  if (options.only_case >= 0 || report.interrupted) return names;
  for (std::size_t i = 0; i < report.reached.size(); ++i) {
    const OutsideName& one = outside_names()[i];
    if (options.with.*one.asked && report.reached[i] == 0)
      names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  return names;
}

bool fault_was_never_met(const CampaignOptions& options, const CampaignReport& report) {
  return !options.run.planted.engine.empty() && options.only_case < 0 && !report.interrupted &&
         report.planted > 0 && report.planted_met == 0;
}

ExitStatus campaign_status(const CampaignOptions& options, const CampaignReport& report) {
  const ExitStatus status = exit_status(first_results(report));
  if (status != ExitStatus::held) return status;
  if (!never_reached(options, report).empty() || fault_was_never_met(options, report))
    return ExitStatus::violated;
  if (!report.unreadable.empty()) return ExitStatus::bad_request;
  return report.ended_early ? ExitStatus::gave_up : status;
}

}  // namespace lockstep
