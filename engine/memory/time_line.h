// The steps of one microbatch on its way through all chunks of a stage, on which the lives of
// tensors are counted (engine/memory/tensor_lives.h).
#pragma once

#include <vector>

#include "engine/plan/chunks.h"
#include "kernels/core/at.h"

namespace lockstep {

// A chunk of n segments has n + 2 steps in its forward pass: the first is the embedding or the
// arrival of the chunk's input, then one for each segment, the last is the head or what is done
// with the chunk's output. Chunks follow each other, and backward passes take the same steps in
// opposite order. With f forward steps these are -1 to f - 2, and the backward step of a forward
// step s is 2 (f - 2) + 1 - s. For two chunks of 2 and 1 segments:
//
//   step         -1   0   1   2  |  3   4   5  |  6   7   8  |  9  10  11  12
//   pass         ----- F0 -----     -- F1 ---     -- B1 ---     ----- B0 -----
//
// That of a stage with one chunk is the time line of engine/offload/plan.h.
class TimeLine {
 public:
  // All chunks of a stage, in order.
  explicit TimeLine(const std::vector<Chunk>& chunks);

  // The first and the last step of a chunk's forward pass.
  int arrival(int chunk) const { return at(arrivals_, chunk); }
  int departure(int chunk) const { return arrival(chunk + 1) - 1; }
  // The last step of all forward passes.
  int last_forward() const { return arrivals_.back() - 1; }
  bool is_forward(int step) const { return step <= last_forward(); }
  int backward(int step) const { return 2 * last_forward() + 1 - step; }

  // `own` is a step of the chunk's own time line, as if it were the only one.
  int step(int chunk, int own) const;
  struct Place {
    int chunk, own;
  };
  Place place(int step) const;
  int segments(int chunk) const { return arrival(chunk + 1) - arrival(chunk) - 2; }

 private:
  std::vector<int> arrivals_;  // One of each chunk; then the step behind all.
};

}  // namespace lockstep
