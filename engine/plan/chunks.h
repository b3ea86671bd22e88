// The chunks of a pipeline stage: which layers and segments each has, and which slots. Slots of all
// chunks are numbered through, so whatever is kept by slot is kept by chunk and microbatch.
#pragma once

#include <vector>

#include "engine/plan/regions.h"

namespace lockstep {

struct Chunk {
  int number = 0;             // In its stage.
  int piece = 0;              // In the model.
  int stage = 0, stages = 1;  // More than one: the pieces before and behind are on other stages.
  bool is_first = true;       // It has the embedding.
  bool is_last = true;        // It has the final norm, the head and the loss.
  bool is_first_of_stage = true, is_last_of_stage = true;
  int first_layer = 0, end_layer = 0;
  int first_segment = 0, end_segment = 0;
  int first_slot = 0, slots = 1;
  // The slots of the piece before, if another stage has it: gradients that are sent there stay that
  // long, since that stage runs a microbatch ahead only when it has a slot for it.
  int slots_before = 0;

  int stage_before() const { return (stage + stages - 1) % stages; }
  int stage_behind() const { return (stage + 1) % stages; }
  int slot_of(int microbatch) const { return first_slot + microbatch % slots; }
  // Whether a layer is of this chunk.
  bool has(int layer) const { return first_layer <= layer && layer < end_layer; }
};

// The chunks of a stage, in the order of its layers. `segments`: those of the whole model.
std::vector<Chunk> chunks_of(const Scenario& scenario, const std::vector<Segment>& segments,
                             int stage = 0);

bool has_layer(const std::vector<Chunk>& chunks, int layer);

}  // namespace lockstep
