// The calls that a trainer makes while it runs a step, so that a judge can read intermediate
// tensors.
#pragma once

#include <vector>

#include "engine/tensors/stored_tensor.h"

namespace lockstep {

struct Chunk;

// Each call comes on the host after the work that it names was submitted to the compute stream. To
// read the tensors, synchronise that stream first. With full_iteration graphs the calls for each
// microbatch come after the launch, so later microbatches have overwritten some tensors: `live`
// says whether the tensors still hold the value.
class StepListener {
 public:
  virtual ~StepListener() = default;
  // Whether it reads tensors of passes. If not, no pass waits for copies of what is offloaded so
  // that they can be read, and forward_done gets none.
  virtual bool looks_at_passes() const { return true; }
  virtual void forward_done(int microbatch, const std::vector<NamedTensor>& activations,
                            bool live) {}
  // `left`: what the pass itself writes and a later one of its slot alone overwrites.
  virtual void backward_done(int microbatch, const std::vector<NamedTensor>& left, bool live) {}
  // The backward pass of a microbatch through one of several chunks: other microbatches may have
  // run theirs through a later chunk already. Behind that through the first chunk, backward_done
  // follows with nothing to look at.
  virtual void chunk_backward_done(int microbatch, const Chunk& chunk,
                                   const std::vector<NamedTensor>& left) {}
  // A pass of an evaluation, unless it is one graph of a whole evaluation. Evaluations offload
  // nothing, so tensors that training offloads do not hold their values and are left out. Nothing
  // waits for the others.
  virtual void evaluation_pass_done(int microbatch, const std::vector<NamedTensor>& activations) {}
  // The same for each pass of one graph of a whole evaluation, after its launch: `live` as above.
  virtual void evaluation_replayed(int microbatch, const std::vector<NamedTensor>& activations,
                                   bool live) {}
  // Recipe delayed of fp8: what each operand remembers, behind the last backward pass of the step.
  virtual void rolled(const std::vector<NamedTensor>& histories) {}
  // All microbatches are accumulated; norm and AdamW have not run.
  virtual void gradients_done() {}
  virtual void step_done() {}
};

}  // namespace lockstep
