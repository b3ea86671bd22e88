// Runs the passes of a training step and of an evaluation, eagerly or by replaying graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/data/loader.h"
#include "engine/data/step_batches.h"
#include "engine/fsdp/sharder.h"
#include "engine/graphs/graph_set.h"
#include "engine/memory/passing_tensors.h"
#include "engine/memory/time_line.h"
#include "engine/nn/expert_state.h"
#include "engine/offload/offloader.h"
#include "engine/parameters/parameters.h"
#include "engine/plan/chunks.h"
#include "engine/plan/region_hooks.h"
#include "engine/plan/schedule.h"
#include "engine/tensors/address_table.h"
#include "engine/train/capture_passes.h"
#include "engine/train/outstanding.h"
#include "engine/train/run_counters.h"
#include "engine/train/step_model.h"
#include "engine/train/trainer_options.h"
#include "engine/train/transfers.h"
#include "scenarios/documents/documents.h"

namespace lockstep {

// The model, the loader and the graphs of one run.
class StepLoop {
 public:
  // Activations have the first precision that the scenario lists. `options.communicator` is null
  // unless something is sharded or the stage has other ranks. `all`: the ranks of all stages, of
  // which there are several; else null.
  StepLoop(Device& device, const Scenario& scenario, const TrainerOptions& options,
           Communicator* all = nullptr);
  StepLoop(const StepLoop&) = delete;

  // Loads the documents of a step. `continued`: the gradients are zero or hold those of earlier
  // microbatches; otherwise they are zeroed.
  void start(std::int64_t step, const StepData& data, bool continued);
  // Runs the passes of this rank's microbatches [first, end). Their gradients and losses are ready
  // when `compute()` is done. If these are all microbatches of the step, one graph may run them.
  void train(std::int64_t step, int first, int end);
  void evaluate(std::int64_t step, const StepData& data);
  // The host waits for passes and copies. Loader, sharder and transfers wait for theirs when they
  // are destroyed.
  void synchronize() const;

  // Recipe delayed of fp8. The ranks exchange what is pending, in a group with other exchanges, and
  // history and exponents change: behind the last backward pass of a step, unless its graph holds
  // both.
  void exchange_behind_passes();
  void roll_behind_passes();
  // fp8.param_gather: makes the codes of this rank's rows, with which `step` begins. Units are
  // gathered behind it.
  bool gathers_codes() const { return layout_ && layout_->gathers_codes; }
  void quantise_shards(std::int64_t step);
  // A tied embedding of several stages, on the first and on the last of them: behind each change of
  // the weight.
  void send_tied_weight();
  // Compute may write the weight without an exchange of all ranks before.
  void await_tied_weight_sent();
  void receive_tied_weight();
  // The exchange alone, which counts as none of a roll.
  void exchange_amaxes() const;

  const Stream& compute() const { return compute_; }
  const Parameters& parameters() const { return parameters_; }
  Loader& loader() { return loader_; }
  std::int64_t bytes_poisoned() const { return loader_.bytes_poisoned(); }  // In staging memory.
  // [1, microbatches], of the passes that ran last.
  Tensor<float> losses() const { return losses_; }
  // [microbatches, 2 * layers E]: load-balancing and z loss of each layer `E`; empty if both are
  // off.
  Tensor<float> router_losses() const { return router_losses_; }
  const std::vector<ExpertState>& expert_states() const { return model_->expert_states(); }
  bool has_head() const { return chunks_.back().is_last; }  // This stage.
  RunCounters counters() const;
  const GraphSet& graphs() const { return graphs_; }
  Sharder* sharder() { return sharder_.get(); }  // Null without sharding and without other ranks.
  // Tokens of documents in the data that was loaded last.
  std::int64_t tokens() const { return packs_.tokens(); }

 private:
  // The pass of one microbatch of this rank through a chunk, forward or backward.
  struct MicrobatchPass {
    int chunk, microbatch, slot;
    int bucket;  // -1 if no bucket is made for its documents.
    bool training;
    bool replay;  // Graphs replay its regions.
    // The chunk whose backward pass comes next, and its slot, if offloaded tensors may be copied
    // back for that meanwhile.
    struct Prefetch {
      Offloader* offloader;
      int slot;
    };
    std::optional<Prefetch> prefetch = {};
    bool copies = true;  // A captured region that offloads makes its copies.
  };
  MicrobatchPass pass_of(int microbatch, bool training, bool replay, int chunk = 0) const;
  // The pass that a slot is captured for.
  MicrobatchPass pass_of_capture(const Chunk& chunk, int slot, int bucket, bool training) const;
  const Chunk& chunk_of(const MicrobatchPass& pass) const { return at(chunks_, pass.chunk); }
  // Offloaders count the slots of their chunk from 0.
  Offloader& offloader(const MicrobatchPass& pass) const { return *at(offloaders_, pass.chunk); }
  int slot_in_chunk(const MicrobatchPass& pass) const {
    return pass.slot - chunk_of(pass).first_slot;
  }
  // In pass number `i`.
  std::optional<MicrobatchPass::Prefetch> prefetch_in(const std::vector<Pass>& passes,
                                                      std::size_t i) const;
  // Before a step of its offload plan's time line.
  static void prefetch(const MicrobatchPass& pass, const OffloadPlan& plan, int step);
  PassContext context(const MicrobatchPass& pass);
  HookCall hook_call(const MicrobatchPass& pass) const;
  void run_hooks(int module, HookPoint point, const MicrobatchPass& pass);

  // One microbatch (step_passes.cpp).
  void forward(const MicrobatchPass& pass);
  void build_metadata(const PassContext& context, const DocumentTable& table);
  void await_sent(const MicrobatchPass& pass, int segment);
  bool ends_first_layer(const MicrobatchPass& pass, int segment) const;
  int sent_slot(const MicrobatchPass& pass) const;
  Transfers::Of transfer_of(const MicrobatchPass& pass) const;
  void keep_router_losses(const MicrobatchPass& pass);
  // These surround the passes of the time line's steps (engine/memory/tensor_lives.h), if slots
  // share memory: padding is poisoned where a step begins to write, and what a listener would find
  // overwritten is copied. `step` is on the time line of the pass's chunk.
  void before_step(const MicrobatchPass& pass, int step);
  void behind_step(const MicrobatchPass& pass, int step);
  // The ends of a chunk: embedding and head, or what lies between two chunks.
  void begin_forward(const PassContext& context, const MicrobatchPass& pass);
  void end_forward(const PassContext& context, const MicrobatchPass& pass);
  void begin_backward(const PassContext& context, const MicrobatchPass& pass);
  void end_backward(const PassContext& context, const MicrobatchPass& pass);
  void backward(const MicrobatchPass& pass);
  // Whether the graph of that region holds copies of offloading.
  bool holds_copies(const MicrobatchPass& pass, const RegionPass& region) const;
  void run_segment(const MicrobatchPass& pass, const Segment& segment, bool forward);
  void run_parts(const MicrobatchPass& pass, const Segment& segment, bool forward);
  RegionPass region_pass(const MicrobatchPass& pass, const Segment& segment, bool forward) const;

  Offloaders make_offloaders();
  // The shared memory of a buffer of a chunk's offloader; null if nothing is shared.
  void* shared_bin(int chunk, int bin, std::int64_t bytes);

  // A step.
  void prefetch_weights();
  // Makes the codes of fp8 weights: before the passes of a step or an evaluation, or, where a graph
  // of all passes may run them, with them.
  enum class Passes : std::uint8_t { training, evaluation };
  void quantise_ahead(std::int64_t step, Passes passes);
  void quantise_with_passes(Passes passes);
  void quantise_weights(Passes passes);
  // Recipe delayed of fp8.
  bool is_delayed() const;
  ExponentRule exponent_rule(Passes passes) const;
  bool rolled_in_graph() const;
  bool exchanges(bool behind_passes) const;
  void exchange_and_count();
  void exchange_shard_amaxes(bool between_ranks);
  void count_exchange();
  void roll();
  void roll_behind(const MicrobatchPass& pass);
  void report_roll();
  void begin_passes(const std::vector<Pass>& passes);
  void end_passes(Sharder::Passes passes);
  std::vector<Pass> passes_of(int first, int end) const;
  void train_passes(int first, int end, bool replay);
  void train_forward(const MicrobatchPass& pass);
  void train_backward(const MicrobatchPass& pass);
  std::vector<Pass> passes_of_iteration() const;
  void iteration();  // All passes of a training step, for one graph.
  // All forward passes of an evaluation. `replay`: graphs replay the regions of those that fit.
  void evaluation(bool replay);
  void drain_copies();
  void join_side_streams();  // Before a graph of several passes, and before its capture.
  void note(const Outstanding& outstanding, int microbatches);
  void count_fallback(Unreplayable reason);  // `no`: a part of a step.
  // Returns the boundaries of the pack and the activations of a microbatch in all chunks, with the
  // addresses at which they can be read now. `pass` is that through the last chunk.
  std::vector<NamedTensor> activations(const MicrobatchPass& pass);
  // The named tensors that its backward pass writes.
  std::vector<NamedTensor> left_by_backward(int slot);
  // Returns the tensors that an evaluation's microbatch leaves in the slots of all chunks.
  std::vector<NamedTensor> evaluated(const MicrobatchPass& pass);
  std::vector<NamedTensor> evaluated_in(const Chunk& chunk, int slot);
  void report_backward(const MicrobatchPass& pass);

  // Graphs (step_graphs.cpp).
  bool replays(std::int64_t step) const;
  // A stage may have none of the captured parts.
  bool has_regions(const Chunk& chunk) const;
  void prepare_graphs(std::int64_t step);
  void train_full_iteration(std::int64_t step);
  void count_copies(const Ledger& graph);
  bool lies_in_its_slots(int microbatch) const;
  void report_iteration();
  void evaluate_graph();
  bool replays_evaluation(std::int64_t step) const;  // Under impl partial.
  void launch(const GraphKey& key, const GraphSet::Body& body, const Stream& stream);

  // Captures of partial graphs (step_capture.cpp).
  void capture_regions();
  void capture_bucket(int bucket, std::span<const Chunk> chunks);
  void capture_graphs_of(int bucket, const Chunk& chunk);
  // Whether the graphs of the pass's bucket and chunk, if the chunk has any, are there.
  bool has_graphs(const MicrobatchPass& pass) const;
  void capture_region(const Segment& segment, const MicrobatchPass& pass);
  void capture_evaluation(const Segment& segment, const MicrobatchPass& pass);
  std::span<const Segment> segments_of(const Chunk& chunk) const;
  std::vector<ExtractedHooks::List> hooks_around(const Segment& segment) const;
  // These surround captures of which each may run passes. The most bytes that are set aside.
  void set_aside();
  void put_back();
  std::int64_t most_set_aside() const;
  void append_counts(std::vector<MemoryRange>& all) const;
  std::vector<MemoryRange> pending_amaxes() const;
  void run_capture_passes(const MicrobatchPass& captured, const Segment& segment,
                          ExtractedHooks& hooks);
  void run_capture_pass(const MicrobatchPass& pass, const Segment& segment, bool forward,
                        ExtractedHooks& hooks);

  Device& device_;
  const Scenario& scenario_;
  TrainerOptions options_;
  Stream compute_;
  const int stage_, replica_;
  TensorPool parameter_pool_, exchanged_pool_;
  std::unique_ptr<const ShardLayout> layout_;  // Null without a sharder.
  Parameters parameters_;
  std::unique_ptr<Sharder> sharder_;
  Modules modules_;
  std::vector<Segment> segments_;
  const std::vector<Chunk> chunks_;  // This stage's.
  const TimeLine time_line_;
  Hooks hooks_;
  TensorPool shared_pool_;
  std::unique_ptr<SharedMemory> shared_;  // Null if slots share no memory.
  CopyQueues copies_;
  Offloaders offloaders_;
  std::unique_ptr<StepModel> model_;
  std::unique_ptr<Transfers> transfers_;  // Null if there is one stage.
  PassingTensors passing_;                // Empty without shared memory, and without a listener.
  Loader loader_;
  StepBatches packs_;
  TensorPool pool_;
  Tensor<float> losses_, router_losses_;
  AddressTable addresses_;
  GraphSet graphs_;
  bool poisons_padding_;
  std::unique_ptr<CapturePasses> capture_passes_;  // Null if captures have none.
  RunCounters counters_;
  const int all_slots_from_;      // A step of so many microbatches has all slots live at once.
  std::int64_t first_step_ = -1;  // That this loop has begun; -1: none.
  bool launched_roll_ = false;    // A graph of the step held it.
};

}  // namespace lockstep
