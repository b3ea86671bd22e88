// The passes of a training step and of an evaluation: what runs eagerly, what a graph replays.
#pragma once

#include <vector>

#include "engine/graph_set.h"
#include "engine/model.h"
#include "engine/regions.h"
#include "engine/schedule.h"

namespace lockstep {

// What a run counts about itself; the harness holds it against what the scenario implies.
struct RunCounters {
  std::int64_t eager_fallbacks = 0;
  std::int64_t recaptures = 0;
  std::int64_t max_outstanding = 0;
  std::int64_t slots_live = 0;
  std::int64_t evaluations = 0;
};

class StepLoop {
 public:
  StepLoop(Device& device, const Scenario& scenario, const TrainerOptions& options);

  // Runs all passes of a step; the step's state and gradients are ready when `compute()` is done.
  void train(std::int64_t step, const StepData& data);
  void evaluate(std::int64_t step, const StepData& data);

  const Stream& compute() const { return compute_; }
  const Parameters& parameters() const { return model_.parameters(); }
  Loader& loader() { return loader_; }
  Tensor<float> losses() const { return losses_; }  // [1, microbatches], of the passes that ran last.
  const RunCounters& counters() const { return counters_; }
  const GraphSet& graphs() const { return graphs_; }
  std::int64_t tokens() const { return tokens_; }  // Tokens of documents, of the data that was loaded last.

 private:
  // What one microbatch runs with. `bucket` < 0: more documents than the largest bucket holds.
  struct Work {
    int microbatch, slot, bucket;
    bool training;
    bool replay;  // Its regions are replayed.
  };
  void load(const StepData& data);
  int bucket_for(std::int64_t slots) const;
  Work work(int microbatch, bool training, bool replay) const;
  PassContext context(const Work& work);

  void forward(const Work& work);
  void backward(const Work& work);
  void run_segment(const Work& work, const Segment& segment, bool forward);
  void run_layers(const Work& work, const Segment& segment, bool forward);

  void train_passes(bool replay);
  void iteration();   // Every pass of a training step, for one graph or none.
  void evaluation();  // Every forward pass of an evaluation.
  void train_full_iteration(std::int64_t step);
  bool all_fit() const;
  int common_bucket() const;

  void capture_regions();
  void capture_region(const Segment& segment, int slot, int bucket);
  bool replays(std::int64_t step) const;
  void prepare_graphs(std::int64_t step);
  void note_outstanding(int outstanding);

  Device& device_;
  const Scenario& scenario_;
  TrainerOptions options_;
  Stream compute_;
  Model<float> model_;
  Loader loader_;
  TensorPool pool_;
  Tensor<float> losses_;
  GraphSet graphs_;
  std::vector<Segment> segments_;
  RunCounters counters_;

  int microbatches_ = 0;      // Of the data loaded last.
  std::vector<int> buckets_;  // Per microbatch.
  std::vector<std::int64_t> slots_in_use_;
  std::int64_t tokens_ = 0;
};

}  // namespace lockstep
