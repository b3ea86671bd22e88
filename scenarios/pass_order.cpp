#include "scenarios/pass_order.h"

#include <algorithm>

namespace lockstep {
namespace {

// The passes of one kind. Backward passes go through the chunks from the last to the first.
std::vector<ScheduledPass> by_groups(const StageSchedule& stage, bool forward) {
  std::vector<ScheduledPass> passes;
  for (std::int64_t begin = 0; begin < stage.microbatches; begin += stage.group) {
    const std::int64_t end = std::min(begin + stage.group, stage.microbatches);
    for (std::int64_t turn = 0; turn < stage.chunks; ++turn) {
      const std::int64_t chunk = forward ? turn : stage.chunks - 1 - turn;
      for (std::int64_t m = begin; m < end; ++m) passes.push_back({forward, chunk, m});
    }
  }
  return passes;
}

// How many microbatches the chunk has in flight right behind its forward pass of microbatch `m`. It
// is counted from the places of both passes in their orders, since a step may have many
// microbatches.
std::int64_t in_flight_behind(const StageSchedule& stage, std::int64_t chunk, std::int64_t m) {
  const std::int64_t of_group = stage.chunks * stage.group;  // Passes of a whole group.
  const std::int64_t last = (stage.microbatches - 1) / stage.group;
  const auto size = [&](std::int64_t group) {
    return group == last ? stage.microbatches - last * stage.group : stage.group;
  };
  const std::int64_t own = m / stage.group;
  const std::int64_t forward = of_group * own + chunk * size(own) + m % stage.group;
  const std::int64_t backward = std::max<std::int64_t>(0, forward - warm_up_passes(stage));
  const std::int64_t group = std::min(backward / of_group, last);
  const std::int64_t in_group =
      backward - group * of_group - (stage.chunks - 1 - chunk) * size(group);
  const std::int64_t done =
      group * stage.group + std::clamp<std::int64_t>(in_group, 0, size(group));
  return m + 1 - done;
}

std::int64_t most_microbatches(const Scenario::Training& training) {
  std::int64_t most = training.microbatches;
  for (const Scenario::MicrobatchChange& change : training.change_microbatches_at)
    most = std::max(most, change.microbatches);
  return most;
}

}  // namespace

std::int64_t warm_up_passes(const StageSchedule& stage) {
  const std::int64_t all = stage.chunks * stage.microbatches;
  const std::int64_t later = stage.stages - 1 - stage.stage;
  switch (stage.schedule) {
    case PipelineSchedule::one_forward_one_backward:
      return std::min(all, later);
    case PipelineSchedule::interleaved:
      return std::min(all, 2 * later + (stage.chunks - 1) * stage.group);
    case PipelineSchedule::gpipe:
      return all;
  }
  return all;
}

std::vector<ScheduledPass> pass_order(const StageSchedule& stage) {
  const std::vector<ScheduledPass> forward = by_groups(stage, true);
  const std::vector<ScheduledPass> backward = by_groups(stage, false);
  const std::int64_t ahead = warm_up_passes(stage), all = std::ssize(forward);
  std::vector<ScheduledPass> passes(forward.begin(), forward.begin() + ahead);
  for (std::int64_t i = 0; i < all; ++i) {
    if (ahead + i < all) passes.push_back(forward[ahead + i]);
    passes.push_back(backward[i]);
  }
  return passes;
}

std::vector<ScheduledPass> part_order(const StageSchedule& part) {
  if (part.schedule != PipelineSchedule::interleaved) return pass_order(part);
  const std::int64_t behind = part.microbatches % part.group;
  const std::int64_t alone = part.group < part.stages ? part.microbatches
                             : behind < part.stages   ? behind
                                                      : 0;
  StageSchedule whole = part;
  whole.microbatches -= alone;
  std::vector<ScheduledPass> passes;
  if (whole.microbatches > 0) passes = pass_order(whole);
  for (std::int64_t m = whole.microbatches; m < part.microbatches; ++m) {
    for (std::int64_t chunk = 0; chunk < part.chunks; ++chunk) passes.push_back({true, chunk, m});
    for (std::int64_t chunk = part.chunks; chunk-- > 0;) passes.push_back({false, chunk, m});
  }
  return passes;
}

std::vector<std::int64_t> most_in_flight(const std::vector<ScheduledPass>& passes,
                                         std::int64_t chunks) {
  std::vector<std::int64_t> now(chunks), most(chunks);
  for (const ScheduledPass& pass : passes) {
    std::int64_t& open = now.at(pass.chunk);
    open += pass.forward ? 1 : -1;
    most.at(pass.chunk) = std::max(most.at(pass.chunk), open);
  }
  return most;
}

StageSchedule stage_schedule(const Scenario& scenario, std::int64_t stage,
                             std::int64_t microbatches) {
  const Scenario::Parallel& parallel = scenario.parallel;
  StageSchedule made{.schedule = parallel.schedule,
                     .stage = stage,
                     .stages = parallel.pipeline,
                     .chunks = parallel.chunks,
                     .group = std::clamp<std::int64_t>(parallel.group, 1, microbatches),
                     .microbatches = microbatches};
  // On one stage without chunks the depth is the scenario's: that of the first of so many stages.
  if (!depth_follows(scenario)) made.stages = scenario.training.in_flight;
  return made;
}

std::vector<std::int64_t> chunk_slots(const Scenario& scenario, std::int64_t stage) {
  if (!depth_follows(scenario)) return {scenario.training.in_flight};
  const std::int64_t chunks = scenario.parallel.chunks;
  std::vector<std::int64_t> slots(chunks);
  // A step that is saved and loaded on its way runs in parts of any number of microbatches. Behind
  // a forward pass the most are in flight if its group is whole, or ends with it: a group that is
  // cut short has more in flight in the later chunks than whole groups have.
  const std::int64_t all = most_microbatches(scenario.training);
  const std::int64_t group = stage_schedule(scenario, stage, all).group;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    for (std::int64_t m = 0; m < all; ++m) {
      for (const std::int64_t count : {m + 1, std::min(all, (m / group + 1) * group), all}) {
        const StageSchedule part = stage_schedule(scenario, stage, count);
        slots[chunk] = std::max(slots[chunk], in_flight_behind(part, chunk, m));
      }
    }
  }
  return slots;
}

std::int64_t slots_of_piece(const Scenario& scenario, std::int64_t piece) {
  const std::int64_t stages = scenario.parallel.pipeline;
  return chunk_slots(scenario, piece % stages).at(piece / stages);
}

std::vector<std::int64_t> blocks_of_pieces(std::int64_t blocks, std::int64_t pieces) {
  std::vector<std::int64_t> list(pieces, blocks / pieces);
  for (std::int64_t i = 0; i < blocks % pieces; ++i) ++list[i];
  return list;
}

std::vector<std::int64_t> stages_of_layers(const Scenario& scenario) {
  const std::vector<Scenario::Block> blocks = scenario.blocks();
  const std::int64_t stages = scenario.parallel.pipeline;
  std::vector<std::int64_t> list;
  std::int64_t piece = 0;
  std::size_t block = 0;
  for (const std::int64_t count :
       blocks_of_pieces(std::ssize(blocks), stages * scenario.parallel.chunks)) {
    for (std::int64_t i = 0; i < count; ++i)
      list.insert(list.end(), blocks[block++].count, piece % stages);
    ++piece;
  }
  return list;
}

std::int64_t scheduled_depth(const Scenario& scenario) { return chunk_slots(scenario).front(); }

}  // namespace lockstep
