#include "harness/mutate/report.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "harness/base/errors.h"
#include "harness/base/version.h"
#include "harness/report/result_json.h"

namespace lockstep {
namespace {

const char* to_text(Fault::Kind kind) {
  return kind == Fault::Kind::named ? "named" : "systematic";
}

void count(MutationScore& sum, const EvaluationOutcome& outcome) {
  ++(outcome.done ? sum.faults : sum.unfinished);
  if (!outcome.done) return;
  sum.equivalent += outcome.equivalent;
  if (!outcome.killed) {
    sum.survived += !outcome.equivalent;
    sum.wrong_reason += outcome.wrong_reason;
  } else if (!outcome.bits && !is_bit_judge(outcome.judge)) {
    ++sum.judges;
  } else {
    ++(outcome.amplifier == "none"    ? sum.bits
       : outcome.amplifier == "delay" ? sum.delayed
                                      : sum.poisoned);
  }
}

// Nearest rank.
std::int64_t quantile(const std::vector<std::int64_t>& sorted, std::size_t percent) {
  if (sorted.empty()) return 0;
  return sorted[(std::max<std::size_t>((sorted.size() * percent + 99) / 100, 1)) - 1];
}

MutationScore score_where(const std::vector<Fault>& faults,
                          const std::vector<EvaluationOutcome>& outcomes,
                          const std::function<bool(const Fault&)>& belongs) {
  MutationScore sum;
  std::vector<std::int64_t> scenarios;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    if (!belongs(faults[i])) continue;
    count(sum, outcomes[i]);
    if (outcomes[i].killed) scenarios.push_back(outcomes[i].scenarios);
  }
  std::sort(scenarios.begin(), scenarios.end());
  sum.median = quantile(scenarios, 50);
  sum.p95 = quantile(scenarios, 95);
  return sum;
}

std::string line(const std::string& name, const MutationScore& s) {
  char text[256];
  std::snprintf(
      text, sizeof text, "%-26s %6lld %6lld %6lld %6lld %7lld %6lld %6lld %6lld   %lld, %lld\n",
      name.c_str(), static_cast<long long>(s.faults), static_cast<long long>(s.equivalent),
      static_cast<long long>(s.bits), static_cast<long long>(s.delayed),
      static_cast<long long>(s.poisoned), static_cast<long long>(s.judges),
      static_cast<long long>(s.survived), static_cast<long long>(s.wrong_reason),
      static_cast<long long>(s.median), static_cast<long long>(s.p95));
  return text;
}

std::string total(const char* name, const MutationScore& s) {
  const std::int64_t of = s.faults - s.equivalent;
  char share[32] = "";  // There is none of nothing.
  if (of > 0) {
    std::snprintf(share, sizeof share, " (%.1f %%)",
                  100.0 * static_cast<double>(s.killed()) / static_cast<double>(of));
  }
  char text[256];
  std::snprintf(text, sizeof text, "%s: %lld of %lld killed%s, %lld proven equivalent%s\n", name,
                static_cast<long long>(s.killed()), static_cast<long long>(of), share,
                static_cast<long long>(s.equivalent),
                s.unfinished > 0 ? (", " + std::to_string(s.unfinished) + " not run").c_str() : "");
  return text;
}

boost::json::object to_json(const Fault& fault, const EvaluationOutcome& outcome) {
  boost::json::object object{
      {"name", fault.name},
      {"kind", to_text(fault.kind)},
      {"class", fault.bug_class},
      {"site", fault.site},
      {"equivalent", outcome.equivalent},
      {"killed", outcome.killed},
      {"judge", to_text(outcome.judge)},
      {"amplifier", outcome.amplifier},
      {"bits_alone", outcome.bits},
      {"scenarios_to_kill", outcome.killed ? boost::json::value(outcome.scenarios) : nullptr},
      {"cases", outcome.scenarios},
      {"scenario", outcome.killer},
      {"reason", outcome.reason},
      {"wrong_reason", outcome.wrong_reason},
      {"finished", outcome.done},
      {"argument", outcome.argument},
      {"replay", outcome.replay}};
  return object;
}

boost::json::object to_json(const MutationScore& s) {
  return {{"faults", s.faults},
          {"killed", s.killed()},
          {"equivalent", s.equivalent},
          {"bits", s.bits},
          {"delayed", s.delayed},
          {"poisoned", s.poisoned},
          {"judges", s.judges},
          {"survived", s.survived},
          {"wrong_reason", s.wrong_reason},
          {"unfinished", s.unfinished},
          {"scenarios_median", s.median},
          {"scenarios_p95", s.p95}};
}

}  // namespace

MutationScore score(const std::vector<Fault>& faults,
                    const std::vector<EvaluationOutcome>& outcomes, Fault::Kind kind) {
  return score_where(faults, outcomes, [kind](const Fault& fault) { return fault.kind == kind; });
}

std::string score_text(const std::vector<Fault>& faults,
                       const std::vector<EvaluationOutcome>& outcomes) {
  std::string text =
      "                                          killed by\n"
      "class                      faults  equiv   bits  +delay +poison judges  surv.  wrong   "
      "cases: median, p95\n";
  std::vector<std::string> classes;
  for (const Fault& fault : faults) {
    if (std::find(classes.begin(), classes.end(), fault.bug_class) == classes.end())
      classes.push_back(fault.bug_class);
  }
  for (const std::string& name : classes) {
    text += line(name, score_where(faults, outcomes,
                                   [&](const Fault& fault) { return fault.bug_class == name; }));
  }
  for (const Fault::Kind kind : {Fault::Kind::named, Fault::Kind::systematic}) {
    const MutationScore sum = score(faults, outcomes, kind);
    if (sum.faults + sum.unfinished > 0) text += total(to_text(kind), sum);
  }
  if (faults.empty()) text += "no fault was tried\n";
  return text;
}

std::string killers_text(const std::vector<Fault>& faults,
                         const std::vector<EvaluationOutcome>& outcomes) {
  constexpr std::size_t kMostLines = 20;
  std::string text;
  if (faults.size() > kMostLines) return text;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    const EvaluationOutcome& outcome = outcomes[i];
    if (outcome.killed)
      text +=
          faults[i].name + ": killed by " + to_text(outcome.judge) + " in " + outcome.killer + "\n";
    if (outcome.equivalent) text += faults[i].name + ": equivalent: " + outcome.argument + "\n";
  }
  return text;
}

std::string survivors_text(const std::vector<Fault>& faults,
                           const std::vector<EvaluationOutcome>& outcomes) {
  std::string text;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    const EvaluationOutcome& outcome = outcomes[i];
    if (!outcome.done || outcome.killed || outcome.equivalent) continue;
    text +=
        "SURVIVED " + faults[i].name + ", after " + std::to_string(outcome.scenarios) + " cases\n";
    if (!outcome.wrong_reason && !outcome.reason.empty()) text += "  " + outcome.reason + "\n";
    if (outcome.wrong_reason)
      text +=
          "  named for another reason, by " + to_text(outcome.judge) + ": " + outcome.reason + "\n";
    text += "  replay: " + outcome.replay + "\n";
  }
  return text;
}

std::vector<CaseResult> mutation_cases_for_junit(const std::vector<Fault>& faults,
                                                 const std::vector<EvaluationOutcome>& outcomes) {
  std::vector<CaseResult> list;
  for (std::size_t i = 0; i < faults.size(); ++i) {
    const EvaluationOutcome& outcome = outcomes[i];
    CaseResult one;
    one.name = faults[i].name;
    one.numerics = "mutate." + faults[i].bug_class;
    one.device.kind = faults[i].plant.device;
    one.judge = outcome.judge;
    one.replay = outcome.replay;
    if (!outcome.done) {
      one.verdict = Verdict::gave_up;
      one.reason = "not run";
    } else if (outcome.equivalent) {
      one.reason = "equivalent: " + outcome.argument;
    } else if (outcome.killed) {
      one.reason = "killed by " + to_text(outcome.judge) + " in " + outcome.killer;
    } else {
      one.verdict = Verdict::violated;
      one.reason = "survived " + std::to_string(outcome.scenarios) + " cases" +
                   (outcome.reason.empty() ? "" : ": " + outcome.reason);
    }
    list.push_back(std::move(one));
  }
  return list;
}

boost::json::object mutation_json(const boost::json::object& asked,
                                  const std::vector<Fault>& faults,
                                  const std::vector<EvaluationOutcome>& outcomes, double seconds) {
  boost::json::array results;
  for (std::size_t i = 0; i < faults.size(); ++i)
    results.push_back(to_json(faults[i], outcomes[i]));
  DeviceInfo device;
  if (!faults.empty()) device.kind = faults.front().plant.device;
  return {{"tool", "lockstep"},
          {"version", version()},
          {"revision", revision()},
          {"device", to_json(device)},
          {"asked", asked},
          {"summary",
           {{"named", to_json(score(faults, outcomes, Fault::Kind::named))},
            {"systematic", to_json(score(faults, outcomes, Fault::Kind::systematic))},
            {"seconds", seconds}}},
          {"results", std::move(results)}};
}

namespace {

// Reads the text that to_json() above has written.
void read_result(const boost::json::object& from, Fault& fault, EvaluationOutcome& outcome) {
  const auto text = [&](const char* key) { return std::string(from.at(key).as_string()); };
  fault.name = text("name");
  fault.kind =
      text("kind") == to_text(Fault::Kind::named) ? Fault::Kind::named : Fault::Kind::systematic;
  fault.bug_class = text("class");
  fault.site = text("site");
  outcome.done = from.at("finished").as_bool();
  outcome.killed = from.at("killed").as_bool();
  outcome.equivalent = from.at("equivalent").as_bool();
  outcome.judge = judge_from_text(text("judge"));
  outcome.amplifier = text("amplifier");
  outcome.bits = from.at("bits_alone").as_bool();
  outcome.scenarios = from.at("cases").to_number<std::int64_t>();
  outcome.killer = text("scenario");
  outcome.reason = text("reason");
  outcome.wrong_reason = from.at("wrong_reason").as_bool();
  outcome.argument = text("argument");
  outcome.replay = text("replay");
}

}  // namespace

boost::json::object add_mutation_json(const std::string& file, std::vector<Fault>& faults,
                                      std::vector<EvaluationOutcome>& outcomes, double& seconds,
                                      bool& interrupted) {
  std::error_code error;
  if (std::filesystem::exists(file, error) && !std::filesystem::is_regular_file(file, error))
    throw RequestError(file + " is no regular file");  // Reading a pipe may wait for ever.
  std::ifstream stream(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(stream)),
                         std::istreambuf_iterator<char>());
  if (!stream) throw RequestError("cannot read " + file);
  try {
    const boost::json::value report = boost::json::parse(text);
    if (report.at("revision").as_string() != revision()) {
      throw RequestError(file + " is a report of another revision than this program's");
    }
    for (const boost::json::value& result : report.at("results").as_array()) {
      read_result(result.as_object(), faults.emplace_back(), outcomes.emplace_back());
      faults.back().plant.device = report.at("device").at("kind").as_string();
    }
    seconds = std::max(seconds, report.at("summary").at("seconds").to_number<double>());
    interrupted = interrupted || report.as_object().contains("interrupted");
    static_cast<void>(report.at("asked").at("shard").as_string());
    return report.at("asked").as_object();
  } catch (const RequestError&) {
    throw;
  } catch (const std::exception& error) {
    throw RequestError(file + " is no report of mutate: " + error.what());
  }
}

}  // namespace lockstep
