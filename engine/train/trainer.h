// Trains one scenario on one device: the step loop, its graphs and its counters.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "kernels/core/contract.h"
#include "scenarios/documents/documents.h"
#include "scenarios/scenario.h"

namespace lockstep {

class Communicator;

// A contiguous tensor on the device in either storage type. Its values are read as floats; a bf16 is widened exactly.
struct StoredValues {
  StoredValues() = default;
  StoredValues(Tensor<float> t) : data(t.data), rows(t.rows), cols(t.cols) {}
  StoredValues(Tensor<bf16> t) : data(t.data), rows(t.rows), cols(t.cols), narrow(true) {}
  const void* data = nullptr;
  std::int64_t rows = 0, cols = 0;
  bool narrow = false;   // bf16
  bool on_host = false;  // In pinned memory: an offloaded tensor's complete copy.
  std::size_t bytes() const { return static_cast<std::size_t>(rows * cols) * (narrow ? sizeof(bf16) : sizeof(float)); }
};

// A tensor on the device that a judge may read between two launches.
struct NamedTensor {
  std::string name;  // docs/tensors.md
  int layer = -1;
  std::string op;  // The op that wrote it.
  StoredValues tensor;
  enum class Rows : std::uint8_t {
    pack,           // Those of the pack, or one row.
    buffer,         // Of the experts' buffer.
    ragged_buffer,  // The same, of which the first are in use: as many as there are pairs that were not dropped.
  };
  Rows rows = Rows::pack;
};

// A parameter as this rank holds it. Sharded, that is some of its rows, or none (then the tensors have no elements and
// no memory); a vector is [1, elements of the rank]. A parameter that is cut into several buckets has a view in each,
// in order of rows; every other has one. Views come in order of `index`.
struct ParameterView {
  std::string name;
  int layer = -1;
  int index = 0;
  bool is_vector = false;
  Tensor<float> weight = {}, gradient = {}, m = {}, v = {};  // gradient: the step's accumulator.
  Tensor<float> microbatch_gradient = {};  // g_m of the microbatch whose backward pass ran last; absent where it went
                                           // into the accumulator at once.
  Tensor<bf16> copy = {};                  // The weight as bf16 products read it; absent where none does.
  std::int64_t first = 0;                  // Element of the whole parameter that the tensors begin with.
  std::int64_t full_rows = 0, full_cols = 0;  // Of the whole parameter.
};

// Called by the trainer on the host while it runs a step; every call comes after the work it names was submitted, on
// the stream given. To look, synchronise that stream and read. In full_iteration graphs the per-microbatch calls come
// after the launch, so what later microbatches overwrite is gone: `live` says whether tensors still hold the value.
class StepListener {
 public:
  virtual ~StepListener() = default;
  virtual void forward_done(int microbatch, const std::vector<NamedTensor>& activations, bool live) {}
  virtual void backward_done(int microbatch, bool live) {}
  virtual void gradients_done() {}  // All microbatches accumulated, before norm and AdamW.
  virtual void step_done() {}
};

// The auxiliary losses of the routers: reported apart from the loss, differentiated with weight 1.
struct RouterLosses {
  float balance = 0;
  float z = 0;
};

// The selection bias of a layer `E` with expert_bias.
struct ExpertBiasView {
  int layer = 0;
  Tensor<float> bias;  // [1, E]
};

// Pairs of a layer `E` in training passes since the run began, for each expert: those that chose it, and those of them
// that were kept.
struct RoutedPairs {
  int layer = 0;
  std::vector<std::int64_t> chosen, kept;
};

struct StepResult {
  float loss = 0;  // Of all ranks, as all that does not name a microbatch.
  float norm = 0, clip = 1, learning_rate = 0;
  std::vector<float> microbatch_losses;  // This rank's.
  RouterLosses router_losses;            // Folds by add from +0: microbatches in order of number, in each its layers.
  std::vector<std::vector<RouterLosses>> microbatch_router_losses;  // This rank's: for each its layers `E`.
  std::int64_t tokens = 0;                                          // Tokens of documents in the step.
};

struct TrainerOptions {
  bool dry_run_ledger = true;            // Before each replay, record the host code again and compare.
  StepListener* listener = nullptr;      // May be null.
  Communicator* communicator = nullptr;  // Null: the one rank of a run. Its size is the scenario's parallel.data.
};

// What a run of the engine found wrong with itself: a moved pointer, a ledger difference, a capture that failed.
class EngineViolation : public std::runtime_error {
 public:
  EngineViolation(std::string judge, const std::string& what) : std::runtime_error(what), judge_(std::move(judge)) {}
  const std::string& judge() const { return judge_; }  // "address", "capture", "ledger"

 private:
  std::string judge_;
};

class Trainer {
 public:
  Trainer(Device& device, const Scenario& scenario, const DataSource& data, const TrainerOptions& options = {});
  ~Trainer();

  StepResult step();  // The next optimizer step, evaluation excluded, or the rest of it.
  // Runs the passes of the next step until this rank has done `microbatches` of its own, more than so far and fewer
  // than all. What is saved then has the gradients so far. Every rank calls it.
  void accumulate(std::int64_t microbatches);
  bool evaluation_is_due() const;  // After the step that just ran.
  StepResult evaluate();           // norm, clip, learning_rate unused.
  std::int64_t steps_done() const;
  std::int64_t microbatches_done() const;  // Of this rank, within the step after those.

  const std::vector<ParameterView>& parameters() const;
  std::vector<ExpertBiasView> expert_biases() const;
  std::vector<RoutedPairs> routed_pairs() const;  // This rank's.
  std::vector<float> read(StoredValues values) const;
  // The same of many, which wait once for the compute stream.
  std::vector<std::vector<float>> read(std::span<const StoredValues> list) const;
  std::string weight_digest() const;                     // 32 hex digits: hi, lo. Every rank calls it.
  std::map<std::string, std::int64_t> counters() const;  // Names of contract.md and scenario.md section 3.

  // safetensors, written to a temporary file, synced and renamed; DeviceError or std::runtime_error on failure, the
  // checkpoint before stays. `load` continues where it was saved, bit for bit. Every rank calls them; what is sharded
  // lies in a file for each rank (engine/checkpoint/run_checkpoint.h), and any number of ranks may load it; within a
  // step only one that can have done as many microbatches each, and with no_shard and optim as many ranks.
  void save(const std::string& path) const;
  void load(const std::string& path);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
