// Compares the engine's steps with the reference's, tensor by tensor, and keeps the first
// difference in program order. It only reads: `ComparedEngine::read` is its one way to the device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/train/trainer.h"
#include "harness/case/verdict.h"
#include "harness/judge/seen_difference.h"
#include "kernels/core/at.h"
#include "oracle/oracle.h"

namespace lockstep {

struct Difference {
  JudgeKind judge;
  std::string reason;
  FirstDifference where;
};

// The source of the values that the engine must give.
enum class Reference : std::uint8_t {
  oracle,
  eager_run,  // Has the sum, not g_m, where a backward pass adds to an accumulator at once.
};

// How much of a step is compared.
enum class Compared : std::uint8_t {
  every_pass,   // The engine's tensors are read while it runs.
  result_only,  // Nothing is read before the engine returns: reading synchronises, hiding races.
};

// The engine of one rank, as a comparison reads it.
struct ComparedEngine {
  // Copies tensors to the host.
  std::function<std::vector<std::vector<float>>(std::span<const StoredValues>)> read;
  const std::vector<ParameterView>& parameters;
  // Tells which ops wrote what a tensor holds, in a run that is watched for them; else empty.
  std::function<std::string(const StoredValues&)> writers = {};
};

// The results that the engine must give in a step, or in the evaluation after it. The referenced
// objects outlive the comparison.
struct ExpectedResults {
  std::int64_t step;
  const StepData& data;
  const oracle::StepResult& want;
  // Empty for an evaluation, which changes no parameter.
  const std::vector<oracle::Parameter>& after;
};

// The first difference of one rank in program order.
class FirstOfRank {
 public:
  const std::optional<Difference>& first() const { return first_; }
  // The difference's position in the run. All ranks count positions alike, so that the rank that
  // differs earliest can be named.
  std::int64_t order() const { return order_; }

  bool is_earlier(std::int64_t order) const { return !first_ || order < order_; }
  void note(std::int64_t order, Difference difference) {
    if (!is_earlier(order)) return;
    order_ = order;
    first_ = std::move(difference);
    note_seen_difference(first_->reason + " in step " + std::to_string(first_->where.step) +
                         " on rank " + std::to_string(first_->where.rank));
  }

 private:
  std::int64_t order_ = 0;
  std::optional<Difference> first_;
};

// The compared rank of a scenario.
struct ComparedRank {
  const Scenario& scenario;
  int rank = 0;  // It selects the microbatches of the reference that this rank runs.
  Reference reference = Reference::oracle;
};

// Compares one step, or one evaluation, with what it must give.
class StepComparison : public StepListener {
 public:
  // `phase` counts the steps and evaluations so far, this one included.
  StepComparison(FirstOfRank& found, const ComparedRank& rank, const ComparedEngine& engine,
                 const ExpectedResults& expected, std::int64_t phase);

  void forward_done(int microbatch, const std::vector<NamedTensor>& activations,
                    bool live) override;
  void backward_done(int microbatch, const std::vector<NamedTensor>& left, bool live) override;
  void chunk_backward_done(int microbatch, const Chunk& chunk,
                           const std::vector<NamedTensor>& left) override;
  void evaluation_pass_done(int microbatch, const std::vector<NamedTensor>& activations) override;
  void rolled(const std::vector<NamedTensor>& histories) override;
  void gradients_done() override;
  void step_done() override;

  // Called after the step or evaluation has returned.
  void finish_step(const StepResult& got, Compared compared);
  void finish_evaluation(const StepResult& got, Compared compared);
  // Compares weights and moments as they stand now.
  void compare_weights(const std::vector<oracle::Parameter>& want);
  // Compares the biases of the layers `E`. `want` has one vector per symbol of the pattern.
  void compare_biases(const std::vector<ExpertBiasView>& got,
                      const std::vector<std::vector<float>>& want);

 private:
  const Scenario& scenario() const { return rank_.scenario; }
  // The number of this rank's microbatch in the step (arithmetic.md 1).
  std::int64_t global(std::int64_t microbatch) const {
    return microbatch * ranks() + rank_.rank % ranks();
  }
  // How many ranks share the microbatches.
  std::int64_t ranks() const { return scenario().parallel.data; }
  // Whether this rank's pipeline stage has a tensor: of a layer, or, with layer -1, of the ends of
  // the model.
  bool has(int layer, bool of_embedding) const;
  bool has(const oracle::Tensor& tensor) const;
  std::int64_t microbatches() const { return std::ssize(forward_order_); }
  bool has(int microbatch) const { return microbatch >= 0 && microbatch < microbatches(); }
  const oracle::MicrobatchResult& want(std::int64_t microbatch) const {
    return at(expected_.want.microbatches, global(microbatch));
  }
  // Whether a backward pass leaves a gradient, or the sum so far, that can be compared. Where ranks
  // exchange gradients, the result is compared when the exchange is complete.
  bool shows_gradients() const {
    return scenario().fsdp.strategy == Sharding::no_shard && ranks() == 1;
  }

  // Positions count the engine's calls, and within a call its tensors, in program order.
  bool is_earlier(std::int64_t order) const { return found_.is_earlier(position(order)); }
  std::int64_t position(std::int64_t order) const { return (phase_ << 32) + order; }
  void note(std::int64_t order, Difference difference) {
    found_.note(position(order), std::move(difference));
  }
  void compare(std::int64_t order, JudgeKind judge, FirstDifference where,
               std::span<const float> got, std::span<const float> want, std::int64_t cols,
               bool rows_of_pack = false, std::int64_t first = 0);
  // Notes an amax of Inf or NaN that the oracle has, of experts that other ranks multiply.
  void look_for_infinite(std::int64_t order, int microbatch, const oracle::Tensor& tensor);
  // Compares this rank's elements of a tensor with those of the whole one.
  void compare_part(std::int64_t order, JudgeKind judge, FirstDifference where,
                    const ParameterView& view, std::span<const float> got,
                    const std::vector<float>& want, std::int64_t cols);
  void compare_scalar(std::int64_t order, JudgeKind judge, int microbatch,
                      const std::string& tensor, float got, float want);
  // Compares tensors with as many of the oracle's, by name. `microbatch`: -1 for none.
  void compare_all(std::int64_t order, int microbatch, const std::vector<NamedTensor>& left,
                   const std::vector<oracle::Tensor>& want);
  void compare_gradients(std::int64_t order, int microbatch,
                         const std::function<bool(const ParameterView&)>& is_due);
  void compare_gradient(std::int64_t order, int microbatch, const ParameterView& view,
                        const std::vector<float>& got);
  std::vector<std::vector<float>> read_each(StoredValues (*member)(const ParameterView&)) const;
  std::vector<float> accumulated(int microbatch, std::size_t parameter) const;
  void missing(std::int64_t order, JudgeKind judge, FirstDifference where, const std::string& side);
  void compare_losses(const StepResult& got, JudgeKind judge);
  void compare_tokens(const StepResult& got);
  void compare_router_losses(const StepResult& got, JudgeKind judge);
  void compare_folded_router_losses(const StepResult& got, JudgeKind judge);
  void require_calls();
  FirstDifference where_is(int microbatch, int layer, std::string op, std::string tensor) const;
  void name_document(FirstDifference& where, std::int64_t rows, std::int64_t cols) const;

  FirstOfRank& found_;
  const ComparedRank& rank_;
  const ComparedEngine& engine_;
  const ExpectedResults expected_;
  const std::int64_t phase_;
  const std::vector<std::int64_t> stages_;  // By layer.

  // Positions that one call of the engine takes: room for the loss that follows a forward pass.
  static constexpr std::int64_t kPerCall = 4;
  std::int64_t calls_ = 0;  // The engine's calls in this step.
  // Position of each microbatch's forward pass, -1 before it.
  std::vector<std::int64_t> forward_order_;
  std::set<int> backwards_;
  bool gradients_seen_ = false, step_seen_ = false;
};

// Compares the run of one rank step by step.
class Comparison : public StepListener {
 public:
  explicit Comparison(const Scenario& scenario, int rank = 0,
                      Reference reference = Reference::oracle)
      : rank_{scenario, rank, reference} {}

  // Begins the comparison of the next step or evaluation. The result lives until the next call.
  StepComparison& begin(const ComparedEngine& engine, const ExpectedResults& expected);

  void forward_done(int microbatch, const std::vector<NamedTensor>& activations,
                    bool live) override;
  void backward_done(int microbatch, const std::vector<NamedTensor>& left, bool live) override;
  void chunk_backward_done(int microbatch, const Chunk& chunk,
                           const std::vector<NamedTensor>& left) override;
  void evaluation_pass_done(int microbatch, const std::vector<NamedTensor>& activations) override;
  void rolled(const std::vector<NamedTensor>& histories) override;
  void gradients_done() override;
  void step_done() override;

  StepComparison& last();  // The comparison that began last.
  const FirstOfRank& found() const { return found_; }

 private:
  const ComparedRank rank_;
  FirstOfRank found_;
  std::int64_t phases_ = 0;
  std::optional<StepComparison> step_;  // Absent before the first step.
};

}  // namespace lockstep
