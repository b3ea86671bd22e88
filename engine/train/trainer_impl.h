// The parts of a trainer. Its functions lie in trainer.cpp (steps and evaluations),
// trainer_read.cpp (values for judges) and trainer_checkpoint.cpp.
#pragma once

#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/tensors/tensor_pool.h"
#include "engine/train/norm_sequence.h"
#include "engine/train/run_state.h"
#include "engine/train/step_loop.h"
#include "engine/train/step_results.h"
#include "engine/train/trainer.h"

namespace lockstep {

struct AdamW;

struct Trainer::Impl {
  Impl(Device& device_, const Scenario& scenario_, const DataSource& data_,
       const TrainerOptions& options_);

  TrainerOptions join(TrainerOptions from);
  TrainerOptions join_stage(TrainerOptions from);
  TrainerOptions join_experts(TrainerOptions from);
  // The ranks of this one's pipeline stage, and of the whole run: one where there is one stage.
  // Null if nothing is exchanged.
  Communicator* communicator() const { return options.communicator; }
  Communicator* of_all() const { return several_stages() ? all_ranks : options.communicator; }
  bool several_stages() const { return scenario.parallel.pipeline > 1; }
  // The ranks that share the microbatches, and this one's number among them.
  int ranks() const { return static_cast<int>(scenario.parallel.data); }
  int replica() const { return device.place.rank % ranks(); }
  bool sharded() const { return scenario.fsdp.strategy != Sharding::no_shard; }
  // Whether this is the first of the ranks of a stage that hold the same values of this parameter,
  // which is not sharded.
  bool is_first_with(const ParameterView& parameter) const;

  // A step.
  StepData take_data();
  StepData documents_of(std::int64_t step) const;
  void start();
  void run_to(std::int64_t microbatches);
  // This rank's number of microbatches in the step that is started.
  std::int64_t microbatches() const;
  void clear_gradients();
  void draw_ahead();
  void load_state(const StepData& data, bool training);
  // The sums of a unit wait for its own gradients alone, so they have a place of their own.
  StepLocationScope at_unit(const Unit& unit) {
    return {device, unit.kind == Unit::Kind::blocks ? unit.first_layer : -1, device.place.part};
  }
  void sum_gradients(const Stream& stream);
  void optimize();
  void update_shards(const Stream& stream);
  bool gathers_late() const;  // Behind the updates of all units: never, but by a planted fault.
  void update_weights(const Stream& stream, int first, int end);
  AdamW update_of(const ParameterView& parameter);

  // Reading.
  template <class T>
  std::vector<T> read(Tensor<T> tensor) const;
  std::byte* stage(std::span<const StoredValues> list);

  // Checkpoints.
  template <class T>
  void write(Tensor<T> tensor, const std::vector<T>& values) const;
  void share_pending_amaxes() const;
  Progress progress() const;
  std::vector<ResidentShard> shards_at(const Progress& progress) const;
  void require_continuable(const std::string& path, const Progress& progress) const;
  void hand_over_tied_weight();
  void restore(const ResidentShard& shard, const TensorShard& stored) const;
  void restore_counts(const ResidentShard& shard, const TensorShard& stored) const;

  Device& device;
  const Scenario scenario;
  const DataSource& data;
  // Present if this is the only rank of a run or of a stage that shards, or one rank of a stage.
  std::unique_ptr<Communicator> own_communicator;
  Communicator* all_ranks = nullptr;
  std::unique_ptr<Communicator> expert_group, replica_group;  // Null unless experts lie apart.
  TrainerOptions options;
  StepLoop loop;
  TensorPool pool;
  NormSequence norm_sequence;
  Tensor<float> norm;
  Tensor<std::uint64_t> digest;  // This rank's sums, then the sums of every rank.
  StepResults results;
  std::optional<PinnedBuffer> staged;  // Receives the tensors that a judge reads.
  std::int64_t steps_done = 0;
  std::int64_t steps_loaded = 0;       // A checkpoint had done so many.
  std::int64_t microbatches_done = 0;  // Microbatches of this rank in the current step.
  std::optional<StepData> started;     // The documents of the current step, if they are loaded.
  bool cleared = false;                // Gradients are zero.
  StepData ahead;                      // The documents of step `ahead_of`, drawn early.
  std::int64_t ahead_of = -1;
  // Targets of the first step that had any; a planted fault divides by them.
  std::int64_t first_targets = 0;
  float learning_rate = 0;
  const int exceptions = std::uncaught_exceptions();  // In flight when this was made.
};

template <class T>
std::vector<T> Trainer::Impl::read(Tensor<T> tensor) const {
  require(tensor.pitch == tensor.cols || tensor.rows == 1, "what is read is contiguous");
  const std::size_t bytes = static_cast<std::size_t>(tensor.size()) * sizeof(T);
  std::vector<T> values(tensor.size());
  if (bytes == 0) return values;
  std::memset(values.data(), 0xff, bytes);  // A copy that does not happen leaves NaN.
  loop.compute().copy(values.data(), tensor.data, bytes, CopyKind::device_to_host);
  loop.compute().synchronize();
  device.host_reads(values.data(), bytes);
  return values;
}

}  // namespace lockstep
