// Walks the tables of rules.
#include "scenarios/rules/legality.h"

#include <array>

#include "scenarios/rules/check.h"

namespace lockstep {
namespace {

// The tables of legality by subject, lowest rule first.
std::array<std::span<const Rule>, 9> legality_rules() {
  return {model_rules(),    data_rules(),    training_rules(), graph_rules(),   offload_rules(),
          sharding_rules(), checker_rules(), added_rules(),    pipeline_rules()};
}

}  // namespace

std::int64_t nearest_divisor(std::int64_t value, std::int64_t of) {
  std::int64_t best = 1;
  for (std::int64_t divisor = 1; divisor <= of; ++divisor) {
    if (of % divisor == 0 && std::abs(divisor - value) < std::abs(best - value)) best = divisor;
  }
  return best;
}

std::vector<ScenarioError> check_legality(const Scenario& scenario) {
  std::vector<ScenarioError> errors;
  for (const std::span<const Rule> rules : legality_rules()) {
    for (const Rule& rule : rules) {
      for (const Finding& finding : rule.check(scenario)) {
        const std::string detail = finding.detail.empty() ? "" : " (" + finding.detail + ")";
        errors.push_back({rule.id.text, "", 0, 0, finding.key, rule.text.text + detail,
                          rule.why.text, finding.nearest});
      }
    }
  }
  return errors;
}

std::vector<Rule> all_rules() {
  std::vector<Rule> rows(reading_rules().begin(), reading_rules().end());
  for (const std::span<const Rule> rules : legality_rules())
    rows.insert(rows.end(), rules.begin(), rules.end());
  rows.insert(rows.end(), built_rules().begin(), built_rules().end());
  return rows;
}

}  // namespace lockstep
