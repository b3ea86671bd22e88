#include "engine/plan/chunks.h"

#include <algorithm>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "scenarios/pass_order.h"

namespace lockstep {

std::vector<Chunk> chunks_of(const Scenario& scenario, const std::vector<Segment>& segments,
                             int stage) {
  const int stages = static_cast<int>(scenario.parallel.pipeline);
  const std::vector<Scenario::Block> blocks = scenario.blocks();
  const int of_slots = faulty("slots-planned-for-the-last-stage", stage, stages - 1);
  const std::vector<std::int64_t> slots = chunk_slots(scenario, of_slots),
                                  slots_before =
                                      chunk_slots(scenario, (stage + stages - 1) % stages);
  const auto counts = blocks_of_pieces(std::ssize(blocks), stages * std::ssize(slots));
  std::vector<Chunk> chunks;
  Chunk next{.stage = stage, .stages = stages};
  std::int64_t block = 0;
  int slot = 0;
  for (const std::int64_t count : counts) {
    block += count;
    const Scenario::Block& last = at(blocks, block - 1);
    next.end_layer = last.first + last.count;
    while (next.end_segment < std::ssize(segments) &&
           next.has(at(segments, next.end_segment).parts.front().layer))
      ++next.end_segment;
    if (next.piece % stages == stage) {
      next.number = next.piece / stages;
      next.slots = static_cast<int>(at(slots, next.number));
      next.first_slot = slot;
      next.is_first = next.piece == 0;
      next.is_last = next.piece + 1 == std::ssize(counts);
      next.is_first_of_stage = next.number == 0;
      next.is_last_of_stage = next.number + 1 == std::ssize(slots);
      // Stage 0 has the later chunk of two neighbours.
      if (stages > 1 && !next.is_first)
        next.slots_before = static_cast<int>(at(slots_before, (next.piece - 1) / stages));
      slot += next.slots;
      chunks.push_back(next);
    }
    next.first_layer = next.end_layer;
    next.first_segment = next.end_segment;
    ++next.piece;
  }
  return chunks;
}

bool has_layer(const std::vector<Chunk>& chunks, int layer) {
  return std::any_of(chunks.begin(), chunks.end(),
                     [=](const Chunk& chunk) { return chunk.has(layer); });
}

}  // namespace lockstep
