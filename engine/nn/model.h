// The model on one device: embedding, the layers of the pattern and head, with the stored tensors
// of every slot.
#pragma once

#include <optional>

#include "engine/data/loader.h"
#include "engine/nn/attention.h"
#include "engine/nn/mamba.h"
#include "engine/nn/mlp.h"
#include "engine/nn/moe.h"
#include "engine/plan/chunks.h"

namespace lockstep {

// Everything a microbatch leaves on the device between its forward and its backward pass through a
// chunk. Graphs hold its addresses.
template <class T>
struct Slot {
  int chunk = 0, number = 0;       // The number counts the slots of all chunks.
  std::vector<PackedBatch> packs;  // One per bucket.
  // For a pack with more documents than the largest bucket holds; replaced when it must grow.
  std::optional<PackedBatch> overflow;
  Tensor<T> embedded;  // The first chunk's alone, as the tensors of the head are the last one's.
  Tensor<T> final_norm, logits;
  // The slot's own copies of the output of the chunk before (every chunk but the first has it), and
  // of the gradient of this chunk's output (every chunk but the last). Other passes run before they
  // are read.
  Tensor<T> input, output_gradient;
  // The head's part of a tied weight's gradient, in the first of several chunks or stages.
  Tensor<float> head_gradient;
  Tensor<float> final_rstd, token_loss, maximum, sum;
  // The gradient of the residual stream in front of each layer, and behind the last; those of head
  // and final norm. Slots and layers share memory for them in either way.
  std::vector<Tensor<T>> gradients;
  Tensor<T> dlogits, dfinal_norm;
  std::vector<std::unique_ptr<Saved<T>>> layers;  // Null for layers of other chunks.
  std::vector<NamedTensor> names;
  // The slot's buffers in the model's pool: all of the above except the overflow.
  std::size_t first_buffer = 0, end_buffer = 0;
};

template <class T>
class Model {
 public:
  // `parameters` must have its memory already, because products are planned here. `shared`: null if
  // slots share no memory. `ranks` is 0 without other ranks. `experts`: the ranks that share those
  // of each layer, or null. Each chunk has an offloader.
  Model(Device& device, const Stream& compute, const Offloaders& offloaders, SharedMemory* shared,
        const Parameters& parameters, const Scenario& scenario, const std::vector<Chunk>& chunks,
        int ranks, Communicator* experts);

  int slots() const { return static_cast<int>(slots_.size()); }
  Slot<T>& slot(int index);
  const PackShape& pack_shape() const { return shape_; }
  const Scenario::Model::Attention& attention() const { return config_.attention; }
  Tensor<std::uint8_t> workspace() const { return workspace_; }
  const CodeScratch& codes() const { return codes_; }
  // Overwrites everything that the previous microbatch left in the slot, padding rows included. Of
  // memory that slots share nothing is overwritten here, since others may be alive in it.
  void poison(const Slot<T>& slot) const;
  // Returns the slot's pack for a bucket, or for `overflow_capacity` documents if bucket < 0.
  const PackedBatch& pack(int slot, int bucket, std::int64_t overflow_capacity);

  // Writes RoPE's table and the experts' initial state.
  void initialize(const Stream& stream) const;

  void embed(const PassContext& pass, const MicrobatchInputs& inputs, Slot<T>& slot) const;
  void forward(const PassContext& pass, const Part& part, Slot<T>& slot) const;
  // Final norm, logits and loss; `loss` is [1, 1].
  void head(const PassContext& pass, const MicrobatchInputs& inputs, Slot<T>& slot,
            Tensor<float> loss) const;

  void head_backward(const PassContext& pass, const MicrobatchInputs& inputs, Slot<T>& slot) const;
  void backward(const PassContext& pass, const Part& part, Slot<T>& slot) const;

  // Between the passes of two chunks, of the same microbatch: from the slot of the one that ran to
  // the slot of the one that is to run.
  void hand_on(const PassContext& pass, const Slot<T>& from, const Slot<T>& to) const;
  void hand_back(const PassContext& pass, const Slot<T>& from, const Slot<T>& to) const;
  // A tied weight's g_m is begun by the head and completed by the embedding, and other microbatches
  // may come between: keeps it in a slot of the first chunk, and takes it back.
  void keep_head_gradient(const PassContext& pass, const Slot<T>& slot) const;
  void take_head_gradient(const PassContext& pass, const Slot<T>& slot) const;
  void embed_backward(const PassContext& pass, const MicrobatchInputs& inputs, Slot<T>& slot) const;

  // Between two stages. What a chunk gives to the next one lies in its slot; gradients are copied
  // to memory that keeps them until the stage that they are sent to has read them
  // (Chunk::slots_before).
  Tensor<T> output(const Slot<T>& slot) const;
  Tensor<T> hold_gradient(const PassContext& pass, const Slot<T>& slot, int microbatch) const;
  // On the last stage, with a tied weight.
  bool sends_head_gradients() const { return !sent_head_gradients_.empty(); }
  Tensor<float> hold_head_gradient(const PassContext& pass, int microbatch) const;

  // For the passes of a capture: gives a value to what the passes of a region read from elsewhere,
  // of the slot or of gradients.
  void fill_input(const Stream& stream, const Segment& region, const Slot<T>& slot,
                  const Ones& ones) const;
  void fill_gradients(const Stream& stream, const Segment& region, const Slot<T>& slot,
                      const Ones& ones) const;
  // Behind them: takes away the value of what they wrote.
  void poison_gradients() const;
  // Elements of the largest tensor that these functions fill.
  std::int64_t most_filled() const;

  const std::vector<ExpertState>& expert_states() const { return expert_states_; }
  void append_addresses(std::vector<const void*>& table) const { pool_.append_addresses(table); }

 private:
  void make_layers(Device& device, const Scenario& scenario, Communicator* experts);
  ScanScratch make_scan_scratch(TensorPool& pool, std::int64_t capacity) const;
  Slot<T> make_slot(const Offloader& offloader, const Chunk& chunk, int index,
                    const Scenario& scenario, const std::vector<ScanScratch>& scans);
  void make_ends(SavedMaker& maker, const Chunk& chunk, Slot<T>& slot);
  bool keeps_head_gradients() const {
    return config_.tied_embedding && (chunks_.size() > 1 || chunks_.front().stages > 1);
  }
  void make_sent(const Scenario& scenario);
  ScratchMaker scratch_maker() { return {pool_, shared_ != nullptr}; }
  void place_gradients(Slot<T>& slot, const Offloader& offloader, const Scenario& scenario);
  bool asks_cudnn() const;
  void make_cudnn_workspace(const std::vector<std::int64_t>& capacities);
  CudnnTables make_cudnn_tables(TensorPool& pool, std::int64_t capacity,
                                std::int64_t max_seqlen) const;
  void plan_products() const;
  Tensor<T> gradient_within_a_layer() const;
  Tensor<T> memory_of_codes() const;
  void make_code_scratch(const Scenario& scenario);
  int last() const { return static_cast<int>(layers_.size()); }
  // The residual gradient that layer `layer` writes; the one it reads is that of layer + 1.
  static Tensor<T> gradient_of(const Slot<T>& slot, int layer);

  Device& device_;
  const Stream& compute_;
  Scenario::Model config_;
  PackShape shape_;
  const std::vector<Chunk> chunks_;
  TensorPool pool_;
  const Parameters& parameters_;
  SharedMemory* const shared_;
  Recomputed<T> recomputed_;
  std::optional<AttentionScratch<T>> attention_scratch_;
  std::optional<MambaScratch<T>> mamba_scratch_;
  std::optional<MlpScratch<T>> mlp_scratch_;
  std::optional<MoeScratch<T>> moe_scratch_;
  std::vector<ExpertState> expert_states_;
  std::vector<std::unique_ptr<Layer<T>>> layers_;
  std::vector<Slot<T>> slots_;
  // Memory of the overflow packs; never inside a graph.
  std::vector<std::unique_ptr<TensorPool>> overflow_pools_;
  Dropout embedding_dropout_;
  Tensor<T> residual_gradient_[2];
  Tensor<T> dlogits_, dfinal_norm_;
  // Gradients that are sent to other stages: of each chunk's input, and the head's of a tied
  // weight.
  std::vector<std::vector<Tensor<T>>> sent_gradients_;
  std::vector<Tensor<float>> sent_head_gradients_;
  Tensor<std::uint8_t> workspace_;
  CodeScratch codes_;
  Tensor<std::uint8_t> cudnn_workspace_;  // Large enough for every bucket.
};

}  // namespace lockstep
