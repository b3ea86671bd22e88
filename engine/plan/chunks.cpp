#include "engine/plan/chunks.h"

#include "kernels/core/at.h"
#include "kernels/core/require.h"
#include "scenarios/pass_order.h"

namespace lockstep {

std::vector<Chunk> chunks_of(const Scenario& scenario, const std::vector<Segment>& segments) {
  require(scenario.parallel.pipeline == 1, "one stage has the whole model");
  const std::vector<Scenario::Block> blocks = scenario.blocks();
  const std::vector<std::int64_t> slots = chunk_slots(scenario);
  std::vector<Chunk> chunks;
  Chunk next;
  std::int64_t block = 0;
  for (const std::int64_t count : blocks_of_pieces(std::ssize(blocks), std::ssize(slots))) {
    block += count;
    const Scenario::Block& last = at(blocks, block - 1);
    next.end_layer = last.first + last.count;
    next.slots = static_cast<int>(at(slots, next.number));
    next.is_first = next.number == 0;
    next.is_last = next.end_layer == std::ssize(scenario.model.pattern);
    while (next.end_segment < std::ssize(segments) &&
           next.has(at(segments, next.end_segment).parts.front().layer))
      ++next.end_segment;
    chunks.push_back(next);
    next.first_layer = next.end_layer;
    next.first_segment = next.end_segment;
    next.first_slot += next.slots;
    ++next.number;
  }
  return chunks;
}

}  // namespace lockstep
