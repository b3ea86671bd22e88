// The model as the step loop runs it: a slot is a number, and the storage type of activations is
// hidden.
#pragma once

#include <memory>
#include <vector>

#include "engine/data/loader.h"
#include "engine/nn/expert_state.h"
#include "engine/nn/layer.h"
#include "engine/offload/offloader.h"
#include "engine/parameters/parameters.h"
#include "engine/plan/chunks.h"
#include "engine/plan/regions.h"
#include "engine/tensors/memory_range.h"

namespace lockstep {

class StepModel {
 public:
  virtual ~StepModel() = default;

  virtual int slots() const = 0;
  virtual const PackShape& pack_shape() const = 0;
  virtual const PackedBatch& pack(int slot, int bucket, std::int64_t overflow_capacity) = 0;
  virtual Tensor<std::uint8_t> workspace() const = 0;
  virtual const CodeScratch& codes() const = 0;
  virtual const std::vector<ExpertState>& expert_states() const = 0;
  virtual std::vector<NamedTensor>& activations(int slot) = 0;
  virtual Tensor<float> router_losses(int slot, int layer) = 0;
  virtual std::int64_t rows_in_use(int slot, int layer) = 0;
  virtual void append_addresses(std::vector<const void*>& table) const = 0;

  virtual void initialize(const Stream& stream) const = 0;
  virtual void poison(int slot) = 0;
  virtual void embed(const PassContext& context, const MicrobatchInputs& inputs, int slot) = 0;
  virtual void forward(const PassContext& context, const Part& part, int slot) = 0;
  virtual void head(const PassContext& context, const MicrobatchInputs& inputs, int slot,
                    Tensor<float> loss) = 0;
  virtual void head_backward(const PassContext& context, const MicrobatchInputs& inputs,
                             int slot) = 0;
  virtual void backward(const PassContext& context, const Part& part, int slot) = 0;
  virtual void embed_backward(const PassContext& context, const MicrobatchInputs& inputs,
                              int slot) = 0;
  virtual void hand_on(const PassContext& context, int from, int to) = 0;
  virtual void hand_back(const PassContext& context, int from, int to) = 0;
  virtual void keep_head_gradient(const PassContext& context, int slot) = 0;
  virtual void take_head_gradient(const PassContext& context, int slot) = 0;
  // Memory between stages: a slot's, or where a gradient is kept that is sent.
  virtual MemoryRange output(int slot) = 0;
  virtual MemoryRange input(int slot) = 0;
  virtual MemoryRange output_gradient(int slot) = 0;
  virtual MemoryRange head_gradient(int slot) = 0;
  virtual MemoryRange hold_gradient(const PassContext& context, int slot, int microbatch) = 0;
  virtual bool sends_head_gradients() const = 0;
  virtual MemoryRange hold_head_gradient(const PassContext& context, int microbatch) = 0;

  virtual void fill_input(const Stream& stream, const Segment& region, int slot,
                          const Ones& ones) = 0;
  virtual void fill_gradients(const Stream& stream, const Segment& region, int slot,
                              const Ones& ones) = 0;
  virtual void poison_gradients() const = 0;
  virtual std::int64_t most_filled() const = 0;
};

// Makes the model with the storage type of the first precision that the scenario lists. `shared`:
// null if slots share no memory. `ranks` is 0 without other ranks. `experts`: the ranks that share
// those of each layer, or null.
std::unique_ptr<StepModel> make_step_model(Device& device, const Stream& compute,
                                           const Offloaders& offloaders, SharedMemory* shared,
                                           const Parameters& parameters, const Scenario& scenario,
                                           const std::vector<Chunk>& chunks, int ranks,
                                           Communicator* experts);

}  // namespace lockstep
