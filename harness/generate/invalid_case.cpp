#include "harness/generate/invalid_case.h"

#include <algorithm>
#include <iterator>

#include "harness/generate/invalid_table.h"
#include "kernels/core/require.h"
#include "scenarios/fp8.h"
#include "scenarios/io/reader.h"
#include "scenarios/rules/offload_modules.h"

namespace lockstep {
namespace {

// Edits of the YAML text, for what a Scenario cannot hold.
struct InvalidText {
  const char* rule;
  const char* replace;  // "" = the text goes to the end.
  const char* with;
};
constexpr InvalidText kInvalidTexts[] = {
    {"Y01", "", "# \x01\n"},
    {"Y02", "schema: 1", "schema: &one 1"},
    {"Y03", "", "modle: {hidden: 32}\n"},
    {"Y04", "", "name: twice\n"},
    {"Y05", "schema: 1", "schema: 1.0"},
    {"Y06", "", "expect: {verdict: perhaps}\n"},
    {"Y07", "schema: 1\n", ""},
    {"L10", "data:\n", "data:\n  path: elsewhere\n"},
};

bool apply_text(const InvalidText& edit, std::string& yaml) {
  const std::string replace = edit.replace;
  const std::size_t at = replace.empty() ? yaml.size() : yaml.find(replace);
  if (at == std::string::npos) return false;
  yaml.replace(at, replace.size(), edit.with);
  return true;
}

const std::vector<InvalidEdit>& invalid_edits() {
  static const std::vector<InvalidEdit> all = [] {
    std::vector<InvalidEdit> list;
    for (const auto& table : {training_edits(), machinery_edits(), fp8_edits()}) {
      list.insert(list.end(), table.begin(), table.end());
    }
    return list;
  }();
  return all;
}

void keep_no_other_codes(Scenario& s) {
  if (s.fsdp.strategy == Sharding::no_shard) s.fp8.param_gather = false;
  if (!default_weight_cache(s)) s.fp8.weight_cache = false;
}

// Number `which` of the invalid_edits, those of the text last; an empty rule where it does not
// apply.
InvalidCase edited_by(std::size_t which, const Scenario& legal, Choices& choices) {
  InvalidCase near{"", "", legal};
  // Ranks that share experts ask for ranks, experts and transports that an edit may take away.
  near.scenario.parallel.expert = 1;
  if (which < invalid_edits().size()) {
    if (!invalid_edits()[which].breaks(near.scenario, choices)) return near;
    near.rule = invalid_edits()[which].rule;
    // Copies may have lost their graph, and a resume its step or ranks, which would break a second
    // rule.
    if (near.rule != "L30" && !captures_copies(near.scenario))
      near.scenario.offload.captured = false;
    if (near.rule != "L44") near.scenario.training.resume_at.clear();
    // So would codes of weights that another strategy does not gather, or does not keep.
    const bool is_of_codes = near.rule == "L49" || near.rule == "L50" || near.rule == "L51";
    if (!is_of_codes) keep_no_other_codes(near.scenario);
    near.text = choices.one_in(2) ? canonical_form(near.scenario) : to_yaml(near.scenario);
    return near;
  }
  const InvalidText& edit = kInvalidTexts[which - invalid_edits().size()];
  // A path beside a histogram names its file, which would break a second rule.
  if (std::string(edit.rule) == "L10" && !legal.data.distribution.histogram.empty()) return near;
  near.scenario.training.resume_at.clear();
  near.text = to_yaml(near.scenario);
  if (apply_text(edit, near.text)) near.rule = edit.rule;
  return near;
}

}  // namespace

InvalidCase make_invalid_case(const Scenario& legal, Choices& choices) {
  const std::size_t all = invalid_edits().size() + std::size(kInvalidTexts);
  const std::size_t first = choices.draw(all);
  for (std::size_t i = 0; i < all; ++i) {
    InvalidCase near = edited_by((first + i) % all, legal, choices);
    if (!near.rule.empty()) return near;
  }
  require(false, "some rule can be broken in every scenario");
  return {};
}

CaseResult judge_invalid_case(const InvalidCase& near) {
  CaseResult result;
  result.name = near.scenario.name;
  result.numerics = "-";
  const ReadResult read = read_scenario_text(near.text, near.scenario.name + ".yaml");
  const auto other =
      std::find_if(read.errors.begin(), read.errors.end(),
                   [&](const ScenarioError& error) { return error.rule != near.rule; });
  if (!read.ok() && other == read.errors.end()) {
    result.reason = "refused by " + near.rule + ", as it must be";
    return result;
  }
  result.verdict = Verdict::violated;
  result.judge = JudgeKind::refusal;
  result.reason = "must be refused by " + near.rule + ", " +
                  (read.ok() ? "but it is legal" : "but also by " + other->text());
  return result;
}

std::vector<std::string> rules_with_invalid_cases() {
  std::vector<std::string> rules;
  for (const InvalidEdit& edit : invalid_edits()) rules.push_back(edit.rule);
  for (const InvalidText& edit : kInvalidTexts) rules.push_back(edit.rule);
  std::sort(rules.begin(), rules.end());
  rules.erase(std::unique(rules.begin(), rules.end()), rules.end());
  return rules;
}

}  // namespace lockstep
