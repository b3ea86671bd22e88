// Mixture-of-experts layer, symbol `E`: arithmetic.md 2.11. It runs in the stages of
// engine/plan/regions.h.
#pragma once

#include <optional>

#include "engine/nn/expert_exchange.h"
#include "engine/nn/expert_state.h"
#include "engine/nn/linear.h"
#include "engine/plan/expert_buffer.h"
#include "kernels/moe/router.h"
#include "kernels/ops/activation.h"

namespace lockstep {

// Gradients on their way through any `E` layer.
template <class T>
struct MoeScratch {
  // `experts`: the ranks that share those of each layer, or null.
  MoeScratch(Device& device, ScratchMaker maker, const Scenario& scenario, Communicator* experts);
  // The same for one layer in one slot.
  MoeScratch placed(SavedMaker& maker) const;
  // Zeroes dbuffer. With host_sync a backward pass writes only the rows in use, while the ops after
  // it, which may be captured, are given all rows. Nobody uses the others, since they belong to no
  // pair, but they must have a value.
  void initialize(const Stream& stream) const;
  ExpertBuffer buffer;
  std::int64_t captured_rows;         // For a planted fault.
  Tensor<T> dmixed, dnorm;            // [T, d]
  Tensor<T> dy, dact, dfc1, dbuffer;  // [R, ..]
  // Present if experts lie on several ranks: dact, dfc1 and these have a row for each row that the
  // experts of this rank compute.
  std::optional<ExpertExchange<T>> exchange;
  Tensor<T> owned_y, owned_dy, owned_dbuffer;
  Tensor<T> shared_dact, shared_dfc1, shared_dx;  // [T, ..]; absent without a shared expert.
  Tensor<float> dweights;                         // [T, k]
  Tensor<float> dlogits;                          // [T, E]
  Tensor<float> sums;                             // [1, E + 1]
};

template <class T>
class Moe : public Layer<T> {
 public:
  Moe(const Parameters& parameters, const Scenario::Model& model, const ExpertState& state,
      const MoeScratch<T>& scratch, const Recomputed<T>& recomputed);
  std::unique_ptr<Saved<T>> make_saved(SavedMaker& maker, Tensor<T> x) const override;
  void forward(const PassContext& pass, Saved<T>& saved) const override;
  void backward(const PassContext& pass, const Saved<T>& saved, Tensor<T> dout,
                Tensor<T> dx) const override;
  void forward_part(const PassContext& pass, Saved<T>& saved, const Part& part) const override;
  void backward_part(const PassContext& pass, const Saved<T>& saved, const Part& part,
                     Tensor<T> dout, Tensor<T> dx) const override;
  void fill_outside(const Stream& stream, const Saved<T>& saved, const Part& part,
                    const Ones& ones) const override;

 private:
  // Results of the stage `router` that later stages and the backward pass read. When only the
  // router is captured, these and the shared expert's output pass from the graph to eager ops, in
  // static memory of the slot.
  struct Routed {
    Tensor<T> norm;
    Tensor<float> rstd, logits, scores, lse, weights;
    Tensor<std::int32_t> selected, counts;
    Tensor<float> slopes;                            // Absent without router losses.
    Tensor<T> shared_fc1, shared_act, shared_mixed;  // Absent without a shared expert.
    Fp8Saved shared_fc1_codes, shared_fc2_codes;
  };
  // Results of the stage `preprocess`, passed on in the same way when it is captured too.
  struct Placed {
    Tensor<std::int32_t> start, rows, pair_row, row_pair;
  };
  struct State : Saved<T> {
    explicit State(const MoeScratch<T>& own) : scratch(own) {}
    const MoeScratch<T> scratch;
    Routed routed;
    Placed placed;
    // The experts of this rank read `owned`, and fc1 and act are theirs; buffer and y have the rows
    // of this rank's tokens. Where every rank has all experts, `owned` is `buffer`.
    Tensor<T> buffer, owned, fc1, act, y, mixed;
    ExpertPlaces places;  // Absent tensors there.
    Fp8Saved fc1_codes, fc2_codes;
    // With host_sync: the experts' row counts as the host reads them.
    std::optional<PinnedBuffer> rows_on_host;
    std::int64_t used_rows = 0;  // Rows of the buffer that ops are given: at least one.
  };
  void route(const PassContext& pass, State& saved) const;
  void score(const PassContext& pass, const State& saved) const;
  void shared_forward(const PassContext& pass, const State& saved) const;
  void place(const PassContext& pass, State& saved) const;
  void count_pairs(const PassContext& pass, const State& saved) const;
  UsedRows read_rows(const PassContext& pass, State& saved) const;
  void run_experts(const PassContext& pass, State& saved) const;
  void apply_experts(const PassContext& pass, const State& saved) const;
  void compute_experts(const PassContext& pass, const State& saved, Tensor<T> y) const;
  // Which rows of the buffer that the experts of this rank read are whose. In fp8 those of each
  // source are a segment.
  Fp8Rows rows_of_owner(const State& saved) const;
  AmaxFrom amax_of_received() const;
  // The products of all experts over the rows of the buffer that ops are given.
  void multiply(const PassContext& pass, const Parameter& weight, const State& saved, Tensor<T> x,
                Tensor<T> y, const Fp8Saved& codes, AmaxFrom from) const;
  void multiply_backward(const PassContext& pass, const Parameter& weight, const State& saved,
                         Tensor<T> dy, Tensor<T> x, Tensor<T> dx, const Fp8Saved& codes,
                         AmaxFrom from) const;
  void input_gradient(const PassContext& pass, const Parameter& weight, const State& saved,
                      Tensor<T> dy, Tensor<T> dx) const;
  void weight_gradients(const PassContext& pass, const Parameter& weight, const State& saved,
                        Tensor<T> dy, Tensor<T> x) const;
  void recompute(const PassContext& pass, const State& saved) const;
  void experts_backward(const PassContext& pass, const State& saved, Tensor<T> dout) const;
  void differentiate_experts(const PassContext& pass, const State& saved, Tensor<T> dy,
                             Tensor<T> dbuffer) const;
  // The same for rows of other ranks, too, whose gradients go back while compute adds up those of
  // weights.
  void differentiate_owned(const PassContext& pass, const State& saved, Tensor<T> dy) const;
  void shared_backward(const PassContext& pass, const State& saved, Tensor<T> dout) const;
  void route_backward(const PassContext& pass, const State& saved, Tensor<T> dout,
                      Tensor<T> dx) const;

  // `amax`: that of the result, which rises to what is stored; or absent.
  void activate(const PassContext& pass, Tensor<T> h, const Fp8Rows& rows, Tensor<T> a,
                Tensor<std::uint32_t> amax = {}) const;
  void activate_backward(const PassContext& pass, Tensor<T> h, Tensor<T> da, const Fp8Rows& rows,
                         Tensor<T> dh, Tensor<std::uint32_t> amax = {}) const;
  bool has_losses() const { return aux_ != 0 || z_ != 0; }

  PreNormBlock<T> block_;
  const Parameter &router_, &fc1_, &fc2_;
  std::optional<Linear<T>> shared_fc1_, shared_fc2_;
  std::int64_t experts_, hidden_;
  std::int32_t top_k_;
  RouterScore kind_;
  CombineRule combine_;
  float aux_, z_;
  bool host_sync_;
  Activation activation_;
  const ExpertState& state_;
  const MoeScratch<T>& scratch_;
  const Recomputed<T>& recomputed_;
};

}  // namespace lockstep
