// Walks the tables of rules.
#include "scenarios/rules/legality.h"

#include "scenarios/rules/check.h"

namespace lockstep {

std::int64_t nearest_divisor(std::int64_t value, std::int64_t of) {
  std::int64_t best = 1;
  for (std::int64_t divisor = 1; divisor <= of; ++divisor) {
    if (of % divisor == 0 && std::abs(divisor - value) < std::abs(best - value)) best = divisor;
  }
  return best;
}

std::vector<ScenarioError> check_legality(const Scenario& scenario) {
  std::vector<ScenarioError> errors;
  for (const std::span<const Rule> rules : {model_rules(), data_rules(), training_rules(), graph_rules(),
                                            offload_rules(), sharding_rules(), checker_rules()}) {
    for (const Rule& rule : rules) {
      for (const Finding& finding : rule.check(scenario)) {
        const std::string what = std::string(rule.text) + (finding.detail.empty() ? "" : " (" + finding.detail + ")");
        errors.push_back({rule.id, "", 0, 0, finding.key, what, rule.why, finding.nearest});
      }
    }
  }
  return errors;
}

}  // namespace lockstep
