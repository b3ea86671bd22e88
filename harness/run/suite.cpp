#include "harness/run/suite.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "harness/base/errors.h"
#include "harness/case/schedules.h"
#include "harness/run/device_choice.h"
#include "harness/run/library.h"
#include "harness/run/memory_check.h"
#include "harness/run/refusal.h"

namespace lockstep {
namespace {

std::string stem(const std::string& path) { return std::filesystem::path(path).stem().string(); }

CaseResult named(const std::string& path, const Scenario& scenario) {
  CaseResult result;
  result.name = scenario.name.empty() ? stem(path) : scenario.name;
  result.numerics = "-";
  return result;
}

// A file that must be refused passes when exactly its rule refuses it. Files that cannot be read as
// far as `expect` (not YAML, a key twice) say the rule in their name: y04-key-twice.yaml.
std::string expected_rule(const ReadResult& read, const std::string& path) {
  if (read.scenario.expect.error != "none") return read.scenario.expect.error;
  std::string rule = stem(path).substr(0, 3);
  std::transform(rule.begin(), rule.end(), rule.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  const bool is_rule = rule.size() == 3 && (rule[0] == 'Y' || rule[0] == 'L') &&
                       std::isdigit(static_cast<unsigned char>(rule[1])) &&
                       std::isdigit(static_cast<unsigned char>(rule[2]));
  return is_rule ? rule : "none";
}

CaseResult judge_refusal(const ReadResult& read, const std::string& path) {
  CaseResult result = named(path, read.scenario);
  const std::string expected = expected_rule(read, path);
  if (!read.ok() && read.rule() == expected) {
    result.reason = "refused by " + expected + ", as expected";
    return result;
  }
  result.verdict = Verdict::violated;
  result.judge = JudgeKind::refusal;
  result.reason = "expected to be refused by " + expected + ", " +
                  (read.ok() ? "but it is legal" : "refused by " + read.errors.front().text());
  return result;
}

CaseResult skipped(const std::string& path, const Scenario& scenario, const std::string& numerics,
                   const std::string& why) {
  CaseResult result = named(path, scenario);
  result.numerics = numerics;
  result.verdict = Verdict::skipped;
  result.reason = why;
  return result;
}

Scenario scenario_of_token(const std::string& token, const std::string& folder) {
  Scenario scenario = read_token(token, folder);
  std::vector<ScenarioError> errors = check_legality(scenario);
  if (errors.empty()) errors = check_built(scenario);
  if (!errors.empty()) throw refusal(errors);
  return scenario;
}

}  // namespace

std::vector<PlannedCase> plan_file(const std::string& path, bool from_library,
                                   std::vector<ScenarioError>& errors) {
  const ReadResult read = read_scenario_file(path);
  const Scenario::Expect& expect = read.scenario.expect;
  // `refused` without its rule expects nothing: that is refused itself (L40).
  const bool expects_refusal = expect.verdict == ExpectedVerdict::refused && expect.error != "none";
  if (expects_refusal || (from_library && lies_under_refused(path))) {
    return {{path, read.scenario, judge_refusal(read, path)}};
  }
  if (!read.ok() && !(from_library && read.rule() == "L00")) {
    errors.insert(errors.end(), read.errors.begin(), read.errors.end());
    return {};
  }
  std::vector<PlannedCase> cases;
  for (const Numerics numerics : read.scenario.numerics) {
    Scenario one = read.scenario;
    one.numerics = {numerics};
    // The bytes that were found legal are those that the token names and the run opens.
    if (one.data.digest.empty()) one.data.digest = read.data_digest;
    const std::vector<ScenarioError> unbuilt = check_built(one);
    std::optional<CaseResult> decided;
    if (!unbuilt.empty()) decided = skipped(path, one, to_text(numerics), unbuilt.front().what);
    cases.push_back({path, std::move(one), std::move(decided), !from_library});
  }
  return cases;
}

std::vector<Scenario> cases_of(const std::string& word, const std::string& folder) {
  std::error_code too_long;  // A token may be longer than any file's name.
  if (word.rfind("ls", 0) == 0 && !std::filesystem::exists(word, too_long))
    return {scenario_of_token(word, folder)};
  std::vector<ScenarioError> errors;
  std::vector<Scenario> list;
  for (PlannedCase& one : plan_file(word, false, errors)) {
    if (!one.decided) {
      list.push_back(std::move(one.scenario));
    } else {
      std::fprintf(stderr, "lockstep: %s %s: %s\n", one.decided->name.c_str(),
                   one.decided->numerics.c_str(), one.decided->reason.c_str());
    }
  }
  if (!errors.empty()) throw refusal(errors);
  if (list.empty()) throw RequestError(word + ": nothing to run");
  return list;
}

void decide_what_is_lacking(PlannedCase& one, const std::string& device) {
  if (one.decided) return;
  const std::string lacks = lacking(one.scenario, device);
  if (lacks.empty()) return;
  one.decided =
      skipped(one.scenario.name, one.scenario, to_text(one.scenario.numerics.front()), lacks);
  if (!one.named) return;
  one.decided->verdict = Verdict::broken;
  one.decided->judge = JudgeKind::device;
}

void give_up_for_memory(PlannedCase& one, const std::string& device) {
  if (one.decided) return;
  const std::string lack = lack_of_memory(one.scenario, memory_use(one.scenario, device));
  if (lack.empty()) return;
  one.decided = named(one.file, one.scenario);
  one.decided->numerics = to_text(one.scenario.numerics.front());
  one.decided->verdict = Verdict::gave_up;
  one.decided->judge = JudgeKind::memory;
  one.decided->reason = lack;
}

CaseResult judged_by_expectation(const Scenario& scenario, CaseResult result) {
  const Scenario::Expect& expect = scenario.expect;
  if (expect.verdict != ExpectedVerdict::violated) return result;
  if (result.verdict == Verdict::holds) {
    result.verdict = Verdict::violated;
    result.judge = JudgeKind::expectation;
    result.reason = "expected to be violated, but everything held";
  } else if (result.verdict == Verdict::violated &&
             (expect.judge == "none" || expect.judge == to_text(result.judge))) {
    result.verdict = Verdict::holds;
    result.reason = "violated as expected, by " + to_text(result.judge) + ": " + result.reason;
  } else if (result.verdict == Verdict::violated) {
    result.reason = "expected judge " + expect.judge + "; " + result.reason;
  }
  return result;
}

}  // namespace lockstep
