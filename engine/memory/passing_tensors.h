// Copies, for a judge, of the tensors whose memory is reused before the end of the forward pass
// that writes them. Made only where somebody listens.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/device.h"
#include "engine/memory/memory_plan.h"
#include "engine/tensors/stored_tensor.h"

namespace lockstep {

class PassingTensors {
 public:
  // Adds the named tensors of a slot, whose chunk has `last_step` as the last of its forward pass.
  void add(Device& device, const MemoryPlan& plan, int slot, int last_step,
           const std::vector<NamedTensor>& names);

  // Behind that step of a forward pass: copies those whose last reader has been submitted, in the
  // order of the stream and so before anything overwrites them.
  void copy(const Stream& stream, int step, int slot) const;
  // Points the copied tensors of a slot at their copies, which are complete when the stream is.
  void point_to_copies(std::vector<NamedTensor>& tensors, int slot) const;
  bool empty() const { return copied_.empty(); }

 private:
  struct Copied {
    StoredValues from;
    int step;  // The last of the pass that reads it.
    PinnedBuffer* to;
  };
  std::deque<PinnedBuffer> pinned_;
  std::map<std::pair<int, std::string>, Copied> copied_;  // By slot and name.
};

}  // namespace lockstep
