#include "scenarios/documents/targets.h"

#include <algorithm>

namespace lockstep {

bool is_masked(const Scenario::Data::Mask& mask, std::int64_t microbatch) {
  return std::ranges::find(mask.microbatches, microbatch) != mask.microbatches.end();
}

bool has_loss(const Scenario& scenario, Purpose purpose, const DrawPlace& place, std::int64_t row) {
  const Scenario::Data::Mask& mask = scenario.data.mask;
  if (row < mask.prefix) return false;
  if (mask.rate.millionths == 0) return true;
  return !happens(draw(scenario.training.seed, purpose, place, row), mask.rate.millionths);
}

void set_targets(const Scenario& scenario, Purpose purpose, const DrawPlace& place,
                 std::int32_t after_last, const std::function<bool(std::size_t)>& selectable,
                 Document& document) {
  const std::size_t length = document.tokens.size();
  document.targets.assign(length, -1);
  if (is_masked(scenario.data.mask, place.microbatch)) return;
  for (std::size_t row = 0; row < length; ++row) {
    const std::int32_t next = row + 1 < length ? document.tokens[row + 1] : after_last;
    if (next < 0 || !selectable(row + 1)) continue;
    if (has_loss(scenario, purpose, place, static_cast<std::int64_t>(row)))
      document.targets[row] = next;
  }
}

void finish_step(StepData& step) {
  std::int32_t number = 0;
  step.targets = 0;
  for (Microbatch& microbatch : step.microbatches) {
    for (Document& document : microbatch.documents) {
      document.number = number++;
      step.targets +=
          std::ranges::count_if(document.targets, [](std::int32_t target) { return target >= 0; });
    }
  }
}

}  // namespace lockstep
