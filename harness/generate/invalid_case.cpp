#include "harness/generate/invalid_case.h"

#include <algorithm>
#include <iterator>

#include "harness/generate/invalid_table.h"
#include "kernels/core/require.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

// Edits of the YAML text, for what a Scenario cannot hold.
struct TextBreaker {
  const char* rule;
  const char* replace;  // "" = the text goes to the end.
  const char* with;
};
constexpr TextBreaker kTextBreakers[] = {
    {"Y01", "", "# \x01\n"},
    {"Y02", "schema: 1", "schema: &one 1"},
    {"Y03", "", "modle: {hidden: 32}\n"},
    {"Y04", "", "name: twice\n"},
    {"Y05", "schema: 1", "schema: 1.0"},
    {"Y06", "", "expect: {verdict: perhaps}\n"},
    {"Y07", "schema: 1\n", ""},
    {"L10", "data:\n", "data:\n  path: elsewhere\n"},
};

bool break_text(const TextBreaker& breaker, std::string& yaml) {
  const std::string replace = breaker.replace;
  const std::size_t at = replace.empty() ? yaml.size() : yaml.find(replace);
  if (at == std::string::npos) return false;
  yaml.replace(at, replace.size(), breaker.with);
  return true;
}

const std::vector<Breaker>& breakers() {
  static const std::vector<Breaker> all = [] {
    std::vector<Breaker> list;
    for (const auto& table : {training_breakers(), machinery_breakers()}) {
      list.insert(list.end(), table.begin(), table.end());
    }
    return list;
  }();
  return all;
}

// Number `which` of the breakers, those of the text last; an empty rule where it does not apply.
NearLegal broken_by(std::size_t which, const Scenario& legal, Choices& choices) {
  NearLegal near{"", "", legal};
  if (which < breakers().size()) {
    if (!breakers()[which].breaks(near.scenario, choices)) return near;
    near.text = choices.one_in(2) ? canonical_form(near.scenario) : to_yaml(near.scenario);
    near.rule = breakers()[which].rule;
    return near;
  }
  const TextBreaker& breaker = kTextBreakers[which - breakers().size()];
  near.text = to_yaml(legal);
  if (break_text(breaker, near.text)) near.rule = breaker.rule;
  return near;
}

}  // namespace

NearLegal break_one_rule(Scenario legal, Choices& choices) {
  const std::size_t all = breakers().size() + std::size(kTextBreakers);
  const std::size_t first = static_cast<std::size_t>(choices.draw(all));
  for (std::size_t i = 0; i < all; ++i) {
    NearLegal near = broken_by((first + i) % all, legal, choices);
    if (!near.rule.empty()) return near;
  }
  require(false, "some rule can be broken in every scenario");
  return {};
}

CaseResult judge_near_legal(const NearLegal& near) {
  CaseResult result;
  result.name = near.scenario.name;
  result.numerics = "-";
  const ReadResult read = read_scenario_text(near.text, near.scenario.name + ".yaml");
  const auto other = std::find_if(read.errors.begin(), read.errors.end(),
                                  [&](const ScenarioError& error) { return error.rule != near.rule; });
  if (!read.ok() && other == read.errors.end()) {
    result.reason = "refused by " + near.rule + ", as it must be";
    return result;
  }
  result.verdict = Verdict::violated;
  result.judge = JudgeKind::refusal;
  result.reason =
      "must be refused by " + near.rule + ", " + (read.ok() ? "but it is legal" : "but also by " + other->text());
  return result;
}

std::vector<std::string> breakable_rules() {
  std::vector<std::string> rules;
  for (const Breaker& breaker : breakers()) rules.push_back(breaker.rule);
  for (const TextBreaker& breaker : kTextBreakers) rules.push_back(breaker.rule);
  std::sort(rules.begin(), rules.end());
  rules.erase(std::unique(rules.begin(), rules.end()), rules.end());
  return rules;
}

}  // namespace lockstep
