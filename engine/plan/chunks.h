// The chunks of a pipeline stage: which layers and segments each has, and which slots. Slots of all
// chunks are numbered through, so whatever is kept by slot is kept by chunk and microbatch.
#pragma once

#include <vector>

#include "engine/plan/regions.h"

namespace lockstep {

struct Chunk {
  int number = 0;
  bool is_first = true;  // It has the embedding.
  bool is_last = true;   // It has the final norm, the head and the loss.
  int first_layer = 0, end_layer = 0;
  int first_segment = 0, end_segment = 0;
  int first_slot = 0, slots = 1;

  int slot_of(int microbatch) const { return first_slot + microbatch % slots; }
  // Whether a layer is of this chunk.
  bool has(int layer) const { return first_layer <= layer && layer < end_layer; }
};

// The chunks of a model on one stage, in the order of its layers. `segments`: those of the model.
std::vector<Chunk> chunks_of(const Scenario& scenario, const std::vector<Segment>& segments);

}  // namespace lockstep
