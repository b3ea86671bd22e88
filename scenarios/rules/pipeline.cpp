// L52 to L55: the pieces of the model, and the order in which a stage runs them.
#include <cstdlib>
#include <optional>

#include "scenarios/documents/layout.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

using std::to_string;

std::int64_t pieces(const Scenario& scenario) {
  return scenario.parallel.pipeline * scenario.parallel.chunks;
}

Findings pieces_have_blocks(const Scenario& scenario) {
  const std::int64_t blocks = std::ssize(scenario.blocks());
  if (pieces(scenario) <= blocks) return {};
  const std::string detail = to_string(pieces(scenario)) + " pieces of " + to_string(blocks) +
                             (blocks == 1 ? " block" : " blocks");
  const Scenario::Parallel& parallel = scenario.parallel;
  if (parallel.pipeline > blocks) return {{"parallel.pipeline", to_string(blocks), detail}};
  return {{"parallel.chunks", to_string(blocks / parallel.pipeline), detail}};
}

Findings schedule_fits_chunks(const Scenario& scenario) {
  const Scenario::Parallel& parallel = scenario.parallel;
  const bool several = parallel.chunks > 1;
  const PipelineSchedule other =
      several ? PipelineSchedule::one_forward_one_backward : PipelineSchedule::interleaved;
  if (parallel.schedule != other) return {};
  return {{"parallel.schedule", several ? "interleaved" : "1f1b",
           to_string(parallel.chunks) + (several ? " chunks" : " chunk")}};
}

Findings scheduled_depth_is_computed(const Scenario& scenario) {
  if (!depth_follows(scenario)) return {};
  const std::int64_t depth = scheduled_depth(scenario), asked = scenario.training.in_flight;
  if (asked == depth) return {};
  return {{"training.in_flight", to_string(depth), to_string(asked)}};
}

bool fits(std::int64_t group, std::int64_t stages, std::int64_t microbatches) {
  const std::int64_t rest = microbatches % group;
  return group >= stages && group <= microbatches && (rest == 0 || rest >= stages);
}

// The group nearest to the one asked for that fits every step, the smaller of two.
std::optional<std::int64_t> nearest_group(const Scenario& scenario) {
  const Scenario::Training& training = scenario.training;
  const std::int64_t stages = scenario.parallel.pipeline, asked = scenario.parallel.group;
  std::optional<std::int64_t> nearest;
  for (std::int64_t group = stages; group <= fewest_microbatches(training); ++group) {
    bool all = fits(group, stages, training.microbatches);
    for (const auto& change : training.change_microbatches_at)
      all = all && fits(group, stages, change.microbatches);
    if (all && (!nearest || std::abs(group - asked) < std::abs(*nearest - asked))) nearest = group;
  }
  return nearest;
}

Findings groups_fill_the_stages(const Scenario& scenario) {
  const Scenario::Parallel& parallel = scenario.parallel;
  if (parallel.chunks == 1) return {};
  const std::optional<std::int64_t> nearest = nearest_group(scenario);
  if (nearest == parallel.group) return {};
  const std::string detail = to_string(parallel.group) + ", microbatches " +
                             to_string(fewest_microbatches(scenario.training)) + ", pipeline " +
                             to_string(parallel.pipeline);
  if (nearest) return {{"parallel.group", to_string(*nearest), detail}};
  return {{"training.microbatches", to_string(parallel.pipeline), detail}};
}

}  // namespace

std::span<const Rule> pipeline_rules() {
  static constexpr Rule kRules[] = {
      {"L52", "pipeline x chunks must not exceed the blocks of the pattern",
       "a piece without a block would do nothing", pieces_have_blocks,
       "parallel.pipeline parallel.chunks model.pattern",
       "parallel: {chunks: 3, schedule: interleaved}"},
      {"L53", "schedule 1f1b needs chunks 1, interleaved needs chunks above 1",
       "1f1b says nothing about the order of chunks, and with one chunk nothing interleaves",
       schedule_fits_chunks, "parallel.schedule parallel.chunks", "parallel: {chunks: 2}"},
      {"L54",
       "in_flight may be given only with schedule 1f1b and pipeline x chunks = 1; elsewhere it is "
       "computed",
       "the order of the passes says how many microbatches are in flight",
       scheduled_depth_is_computed,
       "training.in_flight parallel.schedule parallel.chunks parallel.pipeline parallel.group "
       "training.microbatches training.change_microbatches_at",
       "training: {in_flight: 1}, parallel: {schedule: gpipe}"},
      {"L55",
       "group must be in pipeline..microbatches, and microbatches mod group 0 or at least "
       "pipeline, at every microbatch count",
       "stages would wait for the rest of a group", groups_fill_the_stages,
       "parallel.group parallel.chunks parallel.pipeline training.microbatches "
       "training.change_microbatches_at",
       "parallel: {chunks: 2, schedule: interleaved, group: 3}"},
  };
  return kRules;
}

}  // namespace lockstep
