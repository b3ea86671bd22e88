// Trains one scenario on one device: steps, evaluations, checkpoints, and the values that judges
// read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/violation.h"
#include "engine/parameters/parameter_view.h"
#include "engine/tensors/stored_tensor.h"
#include "engine/train/expert_views.h"
#include "engine/train/step_listener.h"
#include "engine/train/step_result.h"
#include "engine/train/trainer_options.h"
#include "scenarios/counter.h"
#include "scenarios/documents/documents.h"
#include "scenarios/scenario.h"

namespace lockstep {

class Trainer {
 public:
  Trainer(Device& device, const Scenario& scenario, const DataSource& data,
          const TrainerOptions& options = {});
  ~Trainer();  // Waits for the step that was begun last, which may be abandoned.

  // Runs the next optimizer step, or the rest of it after accumulate(). It never evaluates.
  StepResult step();
  // Runs passes of the next step until this rank has done `microbatches` of its own: more than so
  // far, and fewer than all. A checkpoint saved then contains the gradients so far. Every rank
  // calls it.
  void accumulate(std::int64_t microbatches);
  bool evaluation_is_due() const;  // After the step that just ran.
  StepResult evaluate();
  std::int64_t steps_done() const;
  // Microbatches already run by this rank in the current step.
  std::int64_t microbatches_done() const;

  const std::vector<ParameterView>& parameters() const;
  std::vector<ExpertBiasView> expert_biases() const;
  std::vector<RoutedPairs> routed_pairs() const;  // This rank's pairs.
  std::vector<float> read(StoredValues values) const;
  // Reads many tensors with one wait for the compute stream.
  std::vector<std::vector<float>> read(std::span<const StoredValues> list) const;
  std::string weight_digest() const;  // 32 hex digits: hi, lo. Every rank calls it.
  // The same of histories and exponents under recipe delayed of fp8 (arithmetic.md 5.5); "" if
  // there are none.
  std::string scaling_digest() const;
  // docs/scenario-reference.md, section 3, has their names.
  Counters counters() const;

  // A checkpoint is safetensors, written to a temporary file, synced and renamed. A failed save
  // throws DeviceError or std::runtime_error and leaves the earlier checkpoint valid; after `load`
  // the run continues bit for bit. Every rank calls both. Sharded state lies in a file for each
  // rank (engine/checkpoint/run_checkpoint.h), and any number of ranks may load it. A checkpoint
  // saved within a step can be loaded only by a number of ranks that can have done equally many
  // microbatches each, and with no_shard and optim only by as many ranks as saved it.
  void save(const std::string& path) const;
  void load(const std::string& path);

  // Replaces all weights before the first step; moments stay zero. `whole` has each parameter by
  // name, in the shape of docs/tensors.md, row by row. Throws std::invalid_argument for a parameter
  // that is missing or has another number of elements. Every rank calls it.
  void set_weights(const std::map<std::string, std::vector<float>>& whole);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
