#include "harness/expect/vacuity.h"

#include <algorithm>
#include <map>
#include <vector>

#include "harness/expect/expectations.h"

namespace lockstep {

std::string asked_in_vain(const Scenario& scenario, const DataSource& data) {
  struct Range {
    std::int64_t least, most;
  };
  std::map<Counter, Range> ranges;
  for (const Expectation& one : expectations(scenario, data)) {
    Range& range = ranges.try_emplace(one.counter, one.min, one.max).first->second;
    range = {std::max(range.least, one.min), std::min(range.most, one.max)};
    if (range.least > range.most) return to_text(one.counter);
  }
  return "";
}

bool some_step_has_a_target(const Scenario& scenario, const DataSource& data) {
  std::int64_t step = 0;
  while (step < scenario.training.steps && data.training(step).targets == 0) ++step;
  return step < scenario.training.steps;
}

std::string ranks_with_the_same_documents(const Scenario& scenario, const DataSource& data) {
  constexpr int kFew = 16;  // Up to so many tokens may be equal by chance.
  const std::size_t ranks = scenario.parallel.data;
  std::vector<std::vector<std::int32_t>> tokens(ranks);  // All that a rank ever sees.
  for (std::int64_t step = 0; ranks > 1 && step < scenario.training.steps; ++step) {
    const StepData documents = data.training(step);
    for (std::size_t g = 0; g < documents.microbatches.size(); ++g) {
      for (const Document& one : documents.microbatches[g].documents) {
        tokens[g % ranks].insert(tokens[g % ranks].end(), one.tokens.begin(), one.tokens.end());
        tokens[g % ranks].push_back(-1);
      }
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    const bool few = std::count_if(tokens[r].begin(), tokens[r].end(),
                                   [](auto token) { return token >= 0; }) < kFew;
    const auto twin =
        std::find(tokens.begin() + static_cast<std::ptrdiff_t>(r) + 1, tokens.end(), tokens[r]);
    if (few || twin == tokens.end()) continue;
    return "ranks " + std::to_string(r) + " and " + std::to_string(twin - tokens.begin()) +
           " see the same documents: what they exchange could not be told apart";
  }
  return "";
}

}  // namespace lockstep
