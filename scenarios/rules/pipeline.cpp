// L52 to L56: the pieces of the model, the order in which a stage runs them, and the ranks over
// which experts lie.
#include <cstdlib>
#include <optional>

#include "scenarios/documents/layout.h"
#include "scenarios/expert_ranks.h"
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

// The largest number of ranks, up to the one asked for, that divides both.
Findings experts_divide(const Scenario& scenario) {
  const std::int64_t asked = expert_ranks(scenario), data = scenario.parallel.data,
                     experts = scenario.model.moe.experts;
  std::int64_t nearest = asked;
  while (data % nearest != 0 || experts % nearest != 0) --nearest;
  if (nearest == asked) return {};
  return {
      {"parallel.expert", to_string(nearest),
       to_string(asked) + " of data " + to_string(data) + ", " + to_string(experts) + " experts"}};
}

Findings experts_are_summed_in_order(const Scenario& scenario) {
  const bool by_library = scenario.fsdp.reduction == Reduction::nccl;
  if (expert_ranks(scenario) == 1 || !by_library) return {};
  return {{"fsdp.reduction", "ordered", "parallel.expert " + to_string(expert_ranks(scenario))}};
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
      {"L56", "expert must divide data and the number of experts",
       "each rank of a group has equally many experts, and each group is a replica of them",
       experts_divide, "parallel.expert parallel.data model.moe.experts model.pattern",
       "model: {pattern: \"*E\"}, cuda_graph: {impl: none}, parallel: {data: 2, expert: 3}"},
      {"L56", "expert above 1 needs reduction ordered",
       "a rank that has experts folds the gradients of several ranks in their order",
       experts_are_summed_in_order, "fsdp.reduction parallel.expert",
       "model: {pattern: \"*E\"}, cuda_graph: {impl: none}, fsdp: {reduction: nccl}, parallel: "
       "{data: 2, expert: 2, transport: nccl}"},
  };
  return kRules;
}

}  // namespace lockstep
