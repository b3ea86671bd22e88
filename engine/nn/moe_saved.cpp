// Moe::make_saved: it makes every buffer that a layer of experts saves for its backward pass.
#include "engine/nn/moe.h"
#include "kernels/moe/dispatch.h"
#include "kernels/moe/expert_product.h"
#include "kernels/ops/residual.h"
#include "kernels/ops/rms_norm.h"

namespace lockstep {

template <class T>
std::unique_ptr<Saved<T>> Moe<T>::make_saved(SavedMaker& maker, Tensor<T> x) const {
  auto saved = std::make_unique<State>(scratch_.placed(maker));
  const std::int64_t d = router_.weight.cols, rows = scratch_.buffer.rows;
  const std::int64_t width = fc1_.weight.rows * fc1_.sources / experts_;
  saved->x = x;
  Routed& routed = saved->routed;
  routed.norm = block_.make_norm(maker);
  routed.rstd = maker.make_row("norm.rstd", RmsNormForward<T>::kName);
  const Recomputed<T>& again = recomputed_;
  const char* const router = RouterForward<T>::kName;
  routed.logits = maker.make<float>("router.logits", router, experts_, again.router_logits);
  routed.scores = maker.make<float>("router.scores", router, experts_, again.router_scores);
  routed.lse =
      again.moe ? again.router_lse : maker.make_unnamed<float>("router.lse", 1, maker.rows());
  routed.weights = maker.make<float>("router.weights", router, top_k_, again.router_weights);
  routed.selected = maker.make_unnamed<std::int32_t>("selected", maker.rows(), top_k_);
  routed.counts = maker.make_unnamed<std::int32_t>("counts", 1, experts_);
  if (has_losses()) {
    routed.slopes = maker.make_unnamed<float>("slopes", 1, experts_ + 1);
    saved->losses = maker.make_unnamed<float>("losses", 1, 2);
  }
  if (shared_fc1_) {
    const char* const linear = LinearForward<T>::kName;
    routed.shared_fc1_codes = shared_fc1_->make_saved(maker, again);
    routed.shared_fc1 =
        maker.make<T>("shared_fc1", linear, shared_fc1_->outputs(), again.shared_fc1);
    routed.shared_act =
        maker.make<T>("shared_act", ActivationForward<T>::kName, shared_fc2_->inputs(),
                      again.shared_act ? again.shared_act : again.passing(Fp8Layer::shared_fc2));
    routed.shared_fc2_codes = shared_fc2_->make_saved(maker, again);
    routed.shared_mixed = maker.make<T>("shared_out", linear, d, again.shared_out);
  }
  Placed& placed = saved->placed;
  placed.start = maker.make_unnamed<std::int32_t>("expert_start", 1, experts_);
  placed.rows = maker.make_unnamed<std::int32_t>("expert_rows", 1, experts_);
  placed.pair_row = maker.make_unnamed<std::int32_t>("pair_row", maker.rows(), top_k_);
  placed.row_pair = maker.make_unnamed<std::int32_t>("row_pair", 1, rows);
  const bool ragged = !scratch_.buffer.padded;
  const char* const product = ExpertForward<T>::kName;
  const auto make_codes = [&](const Parameter& weight) {
    if (!weight.fp8) return Fp8Saved{};
    const std::int64_t count = scratch_.buffer.owner_rows;
    const bool is_shown = !scratch_.exchange;
    return Fp8Linear(weight).make_saved(
        maker, again, {count, rows_of_owner(*saved), ragged, host_sync_, is_shown});
  };
  const Tensor<T> passing = again.passing(Fp8Layer::expert_fc1);
  saved->buffer =
      maker.make_buffer<T>("dispatched", Dispatch<T>::kName, rows, d, ragged,
                           again.dispatched ? again.dispatched : first_rows(passing, rows));
  saved->used_rows = rows;
  // A judge sees no tensor that has the rows of other ranks.
  const auto make_of_owner = [&](const char* name, const char* op, std::int64_t cols,
                                 Tensor<T> shared) {
    if (!scratch_.exchange) return maker.make_buffer<T>(name, op, rows, cols, ragged, shared);
    return shared ? shared : maker.make_unnamed<T>(name, scratch_.buffer.owner_rows, cols);
  };
  saved->owned = saved->buffer;
  if (scratch_.exchange) {
    saved->places = scratch_.exchange->make_places(maker);
    // `owned` may lie in the memory of `buffer`: the exchange has sent all rows of `buffer` before
    // it writes those of `owned`.
    saved->owned =
        make_of_owner("owned", Dispatch<T>::kName, d, again.owned ? again.owned : passing);
  }
  saved->fc1_codes = make_codes(fc1_);
  saved->fc1 = make_of_owner("expert_fc1", product, width, again.expert_fc1);
  saved->act = make_of_owner("moe_act", ActivationForward<T>::kName, hidden_,
                             again.moe_act ? again.moe_act : again.passing(Fp8Layer::expert_fc2));
  saved->fc2_codes = make_codes(fc2_);
  saved->y = maker.make_buffer<T>("expert_out", product, rows, d, ragged, again.expert_out);
  saved->mixed = maker.make<T>("proj", Combine<T>::kName, d, again.moe ? again.mixed : Tensor<T>{});
  saved->out = maker.make<T>("out", ResidualForward<T>::kName, d);
  saved->dout_amax = block_.dout_amax(routed.shared_fc2_codes.dy_amax);
  return saved;
}

template std::unique_ptr<Saved<float>> Moe<float>::make_saved(SavedMaker&, Tensor<float>) const;
template std::unique_ptr<Saved<bf16>> Moe<bf16>::make_saved(SavedMaker&, Tensor<bf16>) const;

}  // namespace lockstep
