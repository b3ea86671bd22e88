#include "harness/foreign/engine_report.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "harness/foreign/relation.h"
#include "harness/report/report.h"
#include "harness/report/result_json.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep::foreign {
namespace {

namespace json = boost::json;

constexpr std::size_t kMostReasons = 3;

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 1, ' ');
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// What became of a relation in all cases.
struct Summary {
  std::int64_t applied = 0, violated = 0;
  std::optional<Margin> closest = {};                  // Where there is a tolerance.
  std::map<std::string, std::int64_t> not_applicable;  // By reason.
};

std::map<std::string, Summary> summaries(const std::vector<EngineResult>& results) {
  std::map<std::string, Summary> list;
  for (const EngineResult& result : results) {
    for (const RelationOutcome& one : result.relations) {
      if (one.id.empty()) continue;
      Summary& summary = list[one.id];
      if (one.verdict == Verdict::skipped) {
        ++summary.not_applicable[one.reason];
      } else {
        ++summary.applied;
        summary.violated += one.verdict != Verdict::holds;
        if (one.margin && (!summary.closest || summary.closest->used < one.margin->used))
          summary.closest = one.margin;
      }
    }
  }
  return list;
}

std::string reasons_text(const Summary& summary) {
  std::vector<std::pair<std::int64_t, std::string>> reasons;
  std::int64_t cases = 0;
  for (const auto& [reason, count] : summary.not_applicable) {
    reasons.emplace_back(-count, reason);
    cases += count;
  }
  if (reasons.empty()) return "";
  std::sort(reasons.begin(), reasons.end());
  std::string text = ", not applicable to " + std::to_string(cases) + ": ";
  for (std::size_t i = 0; i < reasons.size() && i < kMostReasons; ++i)
    text +=
        (i > 0 ? "; " : "") + reasons[i].second + " (" + std::to_string(-reasons[i].first) + ")";
  return text + (reasons.size() > kMostReasons ? "; ..." : "");
}

// "0.31 of what is allowed (4.1e-05 of its length) by gradient of head.weight in step 0"
std::string margin_text(const Margin& margin) {
  std::ostringstream text;
  text.precision(2);
  text << margin.used << " of what is allowed (" << margin.allowed << " of its length) by "
       << margin.tensor;
  return text.str();
}

std::vector<std::string> projected_keys(const EngineResult& result) {
  std::vector<std::string> keys;
  for (const ProjectedKey& one : result.projected) keys.push_back(one.key);
  return keys;
}

json::object outcome_json(const RelationOutcome& one) {
  json::object object{
      {"relation", one.id},
      {"name", one.name},
      {"verdict", one.verdict == Verdict::skipped ? "not_applicable" : to_text(one.verdict)}};
  if (one.judge != JudgeKind::none) object["judge"] = to_text(one.judge);
  if (!one.reason.empty()) object["reason"] = one.reason;
  if (!one.choices.empty()) object["choices"] = one.choices;
  if (one.first_difference) object["first_difference"] = lockstep::to_json(*one.first_difference);
  if (!one.issue.empty()) object["expected"] = one.issue;
  if (one.margin)
    object["margin"] = {{"used", one.margin->used},
                        {"allowed", one.margin->allowed},
                        {"tensor", one.margin->tensor}};
  return object;
}

json::object relations_json(const std::vector<EngineResult>& results) {
  json::object object;
  for (const auto& [id, summary] : summaries(results)) {
    json::object reasons;
    for (const auto& [reason, count] : summary.not_applicable) reasons[reason] = count;
    json::object relation{{"applied", summary.applied},
                          {"failed", summary.violated},
                          {"not_applicable", std::move(reasons)}};
    if (summary.closest) relation["closest"] = margin_text(*summary.closest);
    object[id] = std::move(relation);
  }
  return object;
}

json::object hello_json(const Hello& hello) {
  return {{"engine", json::value_from(hello.engine)},
          {"device", json::value_from(hello.device)},
          {"honours", hello.honours},
          {"observes", json::value_from(hello.observes)},
          {"counts", json::value_from(hello.counts)},
          {"amplifies", json::value_from(hello.amplifies)},
          {"delays", json::value_from(hello.delays)},
          {"unstable", json::value_from(hello.unstable)}};
}

std::string text_of(const json::value& object, const char* name) {
  return json::value_to<std::string>(object.at(name));
}

}  // namespace

std::string relations_text(const std::vector<EngineResult>& results) {
  const std::map<std::string, Summary> all = summaries(results);
  std::string text;
  for (const Relation& relation : relations()) {
    const auto found = all.find(relation.id);
    if (found == all.end()) continue;
    const Summary& one = found->second;
    text += padded(std::string(relation.id) + " " + relation.name, 26) + "applied to " +
            std::to_string(one.applied) +
            (one.violated > 0 ? ", failed in " + std::to_string(one.violated) : "") +
            (one.closest ? ", at most " + margin_text(*one.closest) : "") + reasons_text(one) +
            "\n";
  }
  return text;
}

json::object to_json(const EngineResult& result) {
  json::object object = lockstep::to_json(result.result);
  json::array projected, outcomes, counters;
  for (const ProjectedKey& one : result.projected)
    projected.push_back({{"key", one.key}, {"from", one.from}, {"to", one.to}});
  for (const RelationOutcome& one : result.relations) outcomes.push_back(outcome_json(one));
  for (const auto& of_a_rank : result.counters) {
    json::object counted;
    for (const auto& [name, value] : of_a_rank) counted[name] = value;
    counters.push_back(std::move(counted));
  }
  object["projected"] = std::move(projected);
  object["without_effect"] = json::value_from(result.without_effect);
  object["relations"] = std::move(outcomes);
  object["relation"] = result.relation;
  object["left_out"] = json::value_from(result.left_out);
  object["engine_counters"] = std::move(counters);
  object["runs"] = result.runs;
  return object;
}

EngineResult result_from_json(const json::object& object) {
  EngineResult result;
  result.result = lockstep::result_from_json(object);
  for (const json::value& one : object.at("projected").as_array())
    result.projected.push_back({text_of(one, "key"), text_of(one, "from"), text_of(one, "to")});
  for (const json::value& one : object.at("relations").as_array()) {
    const std::string verdict = text_of(one, "verdict");
    RelationOutcome outcome{.id = text_of(one, "relation"), .name = text_of(one, "name")};
    for (const Verdict word : {Verdict::violated, Verdict::broken, Verdict::gave_up}) {
      if (verdict == to_text(word)) outcome.verdict = word;
    }
    if (verdict == "not_applicable") outcome.verdict = Verdict::skipped;
    if (one.as_object().contains("reason")) outcome.reason = text_of(one, "reason");
    if (one.as_object().contains("expected")) outcome.issue = text_of(one, "expected");
    if (const json::value* const margin = one.as_object().if_contains("margin"))
      outcome.margin = Margin{.used = margin->at("used").to_number<double>(),
                              .allowed = margin->at("allowed").to_number<double>(),
                              .tensor = text_of(*margin, "tensor")};
    result.relations.push_back(std::move(outcome));
  }
  result.relation = text_of(object, "relation");
  return result;
}

std::vector<CaseResult> EngineReport::cases() const {
  std::vector<CaseResult> list;
  for (const EngineResult& one : results) list.push_back(one.result);
  return list;
}

std::string case_text(const EngineResult& result) {
  std::string text;
  for (const ProjectedKey& one : result.projected)
    text += "  projected  " + one.key + ": " + one.from + " -> " + one.to + "\n";
  if (!result.without_effect.empty())
    text += "  without effect: " + joined(result.without_effect) + "\n";
  for (const RelationOutcome& one : result.relations) {
    if (one.id.empty()) continue;
    const std::string verdict = one.verdict == Verdict::skipped ? "not applicable"
                                : !one.issue.empty()            ? "fails as expected, " + one.issue
                                                                : to_text(one.verdict);
    const bool is_told = fails(result.result) && (result.relation + ":").starts_with(one.id + ":");
    text += "  " + padded(one.id + " " + one.name, 26) + verdict +
            (one.reason.empty() || is_told ? "" : ": " + one.reason) +
            (one.margin ? ", " + margin_text(*one.margin) : "") + "\n";
  }
  for (const std::string& tensor : result.left_out)
    text += "  left out, since it differs between equal runs: " + tensor + "\n";
  return shown_lines(text);
}

std::string table(const EngineReport& report) {
  std::string text;
  std::map<std::string, std::int64_t> projected;
  std::size_t name_width = 4;
  for (const EngineResult& one : report.results)
    name_width = std::max(name_width, one.result.name.size());
  for (const EngineResult& one : report.results) {
    std::int64_t applied = 0;
    for (const RelationOutcome& outcome : one.relations)
      applied += outcome.verdict != Verdict::skipped && !outcome.id.empty();
    const std::vector<std::string> keys = projected_keys(one);
    for (const std::string& key : keys) ++projected[key];
    text += padded(one.result.name, name_width + 2) + one.result.numerics + "  " +
            padded(to_text(one.result.verdict), 9) + std::to_string(applied) + " relations, " +
            std::to_string(one.runs) + " runs, " + seconds_text(one.result.seconds) + " s" +
            (keys.empty() ? "" : "; projected: " + joined(keys)) +
            (one.result.reason.empty() ? "" : "; " + one.result.reason) + "\n";
  }
  text += "\nengine " + report.hello.engine_text() + "\n" + relations_text(report.results);
  for (const auto& [key, count] : projected)
    text += "projected " + key + " in " + std::to_string(count) + " cases\n";
  if (!report.hello.unstable.empty())
    text +=
        "not looked at, the engine calls them unstable: " + joined(report.hello.unstable) + "\n";
  for (const std::string& line : report.expected.unmet()) text += line + "\n";
  for (const std::string& line : report.expected.unused()) text += line + "\n";
  const std::vector<CaseResult> cases = report.cases();
  const auto count = [&](Verdict verdict) { return std::to_string(count_of(cases, verdict)); };
  text += count(Verdict::holds) + " held, " + count(Verdict::violated) + " violated, " +
          count(Verdict::broken) + " broken, " + count(Verdict::gave_up) + " gave up, " +
          count(Verdict::skipped) + " skipped\n";
  return shown_lines(text);
}

std::string hello_text(const Hello& hello) {
  std::string text = "engine " + hello.engine_text() + "\n";
  for (const auto& [name, value] : hello.device) text += "  device " + name + ": " + value + "\n";
  text += "\nhonours\n";
  for (const json::key_value_pair& item : hello.honours)
    text += "  " + std::string(item.key()) + ": " + json::serialize(item.value()) + "\n";
  text += "\nclaims\n";
  const std::pair<const char*, bool> claims[] = {{"deterministic", hello.deterministic},
                                                 {"weights_by_name", hello.weights_by_name},
                                                 {"recompute_exact", hello.recompute_exact},
                                                 {"padding_defined", hello.padding_defined}};
  for (const auto& [name, claimed] : claims)
    text += std::string("  ") + name + ": " + (claimed ? "true" : "false") + "\n";
  const auto list = [](const std::set<std::string>& words) {
    return joined({words.begin(), words.end()});
  };
  text += "  row_invariant: " + list(hello.row_invariant) + "\n";
  text += "  counters_exact: " + list(hello.counters_exact) + "\n";
  text += "\nobserves " + joined(hello.observes) + "\n";
  for (const auto& [name, how] : hello.counts) text += "counts " + name + " (" + how + ")\n";
  if (!hello.amplifies.empty()) text += "amplifies " + list(hello.amplifies) + "\n";
  if (!hello.delays.empty()) text += "delays " + list(hello.delays) + "\n";
  if (!hello.unstable.empty()) text += "unstable " + joined(hello.unstable) + "\n";
  if (!hello.expectations.empty()) text += "expected failures in " + hello.expectations + "\n";
  return shown_lines(text);
}

json::object to_json(const EngineReport& report) {
  const std::vector<CaseResult> cases = report.cases();
  json::object whole =
      run_to_json(cases, cases.empty() ? DeviceInfo() : cases.front().device, report.seconds);
  json::array results;
  for (const EngineResult& one : report.results) {
    json::object object = to_json(one);
    object.erase("device");
    results.push_back(std::move(object));
  }
  whole["results"] = std::move(results);
  whole["hello"] = hello_json(report.hello);
  whole["relations"] = relations_json(report.results);
  whole["expected_failures"] = {{"unmet", json::value_from(report.expected.unmet())},
                                {"unused", json::value_from(report.expected.unused())}};
  if (report.interrupted) whole["interrupted"] = true;
  return whole;
}

ExitStatus status_of(const EngineReport& report) {
  const ExitStatus status = exit_status(report.cases());
  return report.expected.unmet().empty() ? status : ExitStatus::violated;
}

}  // namespace lockstep::foreign
