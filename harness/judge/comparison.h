// Holds the engine's step against the oracle's, tensor by tensor, and keeps the first difference in program order.
// Judges only: it never touches the device but through `read`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/train/trainer.h"
#include "harness/case/verdict.h"
#include "oracle/oracle.h"

namespace lockstep {

struct Difference {
  JudgeKind judge;
  std::string reason;
  FirstDifference where;
};

class Comparison : public StepListener {
 public:
  using Read = std::function<std::vector<std::vector<float>>(std::span<const StoredValues>)>;

  // `read` brings tensors of the engine to the host; `parameters` are the engine's. Both are set once the trainer
  // exists, before the first step.
  // `rank` of parallel.data: which of the oracle's microbatches the engine runs, in this place of the run.
  // `sums_are_wanted`: the judge is an eager run: where the engine shows an accumulator after a backward pass, it has
  // that, not g_m.
  explicit Comparison(const Scenario& scenario, int rank = 0, bool sums_are_wanted = false)
      : scenario_(scenario), rank_(rank), sums_are_wanted_(sums_are_wanted) {}
  void attach(Read read, const std::vector<ParameterView>& parameters);

  // What the next step, or the evaluation after it, must give. The arguments outlive the step.
  void expect_step(std::int64_t step, const StepData& data, const oracle::StepResult& want,
                   const std::vector<oracle::Parameter>& after);
  void expect_evaluation(std::int64_t step, const StepData& data, const oracle::StepResult& want);

  void forward_done(int microbatch, const std::vector<NamedTensor>& activations, bool live) override;
  void backward_done(int microbatch, bool live) override;
  void gradients_done() override;
  void step_done() override;

  // After the step or evaluation returned. `listened` is false for a run that nobody looked at: then only what the
  // result holds is compared.
  void finish_step(const StepResult& got, bool listened);
  void finish_evaluation(const StepResult& got, bool listened);
  // Weights and moments as they stand now.
  void compare_weights(const std::vector<oracle::Parameter>& want);
  // The selection biases of the layers `E`: `want` has a vector for each symbol of the pattern.
  void compare_biases(const std::vector<ExpertBiasView>& got, const std::vector<std::vector<float>>& want);

  const std::optional<Difference>& first() const { return first_; }
  // Its place in the run, which all ranks count alike: of two ranks the one that differs earlier is named.
  std::int64_t order() const { return order_; }

 private:
  // Numbers in the step of this rank's microbatch, and how many it has.
  std::int64_t global(std::int64_t microbatch) const { return microbatch * ranks() + rank_; }
  std::int64_t ranks() const { return scenario_.parallel.data; }
  std::int64_t microbatches() const { return std::ssize(forward_order_); }
  bool has(int microbatch) const { return microbatch >= 0 && microbatch < microbatches(); }
  const oracle::MicrobatchResult& want(std::int64_t microbatch) const {
    return want_->microbatches[static_cast<std::size_t>(global(microbatch))];
  }
  // Whether a backward pass leaves its gradient, or the sum so far, to be looked at. Where ranks exchange gradients,
  // what they made of them is judged when all are there.
  bool shows_gradients() const { return scenario_.fsdp.strategy == Sharding::no_shard && ranks() == 1; }

  // A place in program order: calls of the engine in their order, and tensors in theirs.
  bool earlier(std::int64_t order) const { return !first_ || place_of(order) < order_; }
  std::int64_t place_of(std::int64_t order) const { return (phases_ << 32) + order; }
  void note(std::int64_t order, Difference difference);
  void compare(std::int64_t order, JudgeKind judge, FirstDifference where, std::span<const float> got,
               std::span<const float> want, std::int64_t cols, bool rows_of_pack = false, std::int64_t first = 0);
  // Of a whole tensor of the oracle's the elements that this rank has.
  void compare_part(std::int64_t order, JudgeKind judge, FirstDifference where, const ParameterView& view,
                    std::span<const float> got, const std::vector<float>& want, std::int64_t cols);
  void compare_scalar(std::int64_t order, JudgeKind judge, int microbatch, const std::string& tensor, float got,
                      float want);
  void compare_gradient(std::int64_t order, int microbatch, const ParameterView& view, const std::vector<float>& got);
  std::vector<std::vector<float>> read_each(StoredValues (*member)(const ParameterView&)) const;
  std::vector<float> accumulated(int microbatch, std::size_t parameter) const;
  void missing(std::int64_t order, JudgeKind judge, FirstDifference where, const std::string& side);
  void compare_losses(const StepResult& got, JudgeKind judge);
  void compare_tokens(const StepResult& got);
  void compare_router_losses(const StepResult& got, JudgeKind judge);
  void compare_folded_router_losses(const StepResult& got, JudgeKind judge);
  void require_calls();
  FirstDifference at(int microbatch, int layer, std::string op, std::string tensor) const;
  void name_document(FirstDifference& where, std::int64_t rows, std::int64_t cols) const;

  const Scenario& scenario_;
  const int rank_;
  const bool sums_are_wanted_;
  Read read_;
  const std::vector<ParameterView>* parameters_ = nullptr;

  std::int64_t step_ = -1;
  const StepData* data_ = nullptr;
  const oracle::StepResult* want_ = nullptr;
  const std::vector<oracle::Parameter>* after_ = nullptr;
  bool evaluating_ = false;

  std::int64_t phases_ = 0;                  // Steps and evaluations so far.
  std::int64_t calls_ = 0;                   // Of this one.
  std::vector<std::int64_t> forward_order_;  // Place of each microbatch's forward pass, -1 before it.
  std::set<int> backwards_;
  bool gradients_seen_ = false, step_seen_ = false;

  std::int64_t order_ = 0;
  std::optional<Difference> first_;
};

}  // namespace lockstep
