#include "engine/nn/moe.h"

#include <algorithm>

#include "kernels/core/fault.h"
#include "kernels/moe/dispatch.h"
#include "kernels/moe/expert_product.h"
#include "kernels/moe/expert_state.h"

namespace lockstep {
namespace {

// Which rows of the first `rows` of the buffer are whose.
template <class Placed>
Fp8Rows expert_rows(const Placed& placed, std::int64_t rows) {
  return {placed.row_pair.columns(0, rows), placed.start, placed.rows};
}

// Lets an op raise the amaxes of what it stores, if there are any.
template <class Op>
void take_amax(Op& op, const Fp8Rows& rows, Tensor<std::uint32_t> amax) {
  if (!amax) return;
  op.amax = amax;
  op.start = rows.start;
  op.rows = rows.rows;
}

}  // namespace

template <class T>
Moe<T>::Moe(const Parameters& parameters, const Scenario::Model& model, const ExpertState& state,
            const MoeScratch<T>& scratch, const Recomputed<T>& recomputed)
    : block_(parameters[parameters.of_layer(state.layer) + MoeParameter::norm_gain], model,
             state.layer, recomputed.norm),
      router_(parameters[parameters.of_layer(state.layer) + MoeParameter::router]),
      fc1_(parameters[parameters.of_layer(state.layer) + MoeParameter::fc1]),
      fc2_(parameters[parameters.of_layer(state.layer) + MoeParameter::fc2]),
      experts_(model.moe.experts),
      hidden_(model.moe.hidden),
      top_k_(static_cast<std::int32_t>(model.moe.top_k)),
      kind_(model.moe.router == Router::sigmoid ? RouterScore::sigmoid : RouterScore::softmax),
      // No scenario key sets these. The score of a single expert keeps its size: renormalised it
      // would be 1, and the router would learn nothing (docs/decisions.md).
      combine_{.renormalise = model.moe.top_k > 1, .scaling = 1.0f},
      aux_(static_cast<float>(model.moe.aux_loss.value())),
      z_(static_cast<float>(model.moe.z_loss.value())),
      host_sync_(faulty("host-sync-left-out", model.moe.host_sync, false)),
      activation_(model.mlp.activation == MlpActivation::swiglu ? Activation::swiglu
                                                                : Activation::squared_relu),
      state_(state),
      scratch_(scratch),
      recomputed_(recomputed) {
  if (model.moe.shared_hidden == 0) return;
  shared_fc1_.emplace(parameters[parameters.of_layer(state.layer) + MoeParameter::shared_fc1]);
  shared_fc2_.emplace(parameters[parameters.of_layer(state.layer) + MoeParameter::shared_fc2]);
}

// ---- Forward ------------------------------------------------------------------------------------

template <class T>
void Moe<T>::forward(const PassContext& pass, Saved<T>& saved) const {
  forward_part(pass, saved, {});
}
template <class T>
void Moe<T>::forward_part(const PassContext& pass, Saved<T>& base, const Part& part) const {
  State& saved = static_cast<State&>(base);
  if (part.has(Stage::router)) route(pass, saved);
  if (part.has(Stage::preprocess)) place(pass, saved);
  if (part.has(Stage::experts)) run_experts(pass, saved);
}

template <class T>
void Moe<T>::route(const PassContext& pass, State& saved) const {
  const Routed& r = saved.routed;
  const Tensor<std::uint32_t> none;
  block_.norm(pass, saved.x, r.norm, r.rstd,
              shared_fc1_ ? cleared_amax(pass, r.shared_fc1_codes.x_amax) : none);
  score(pass, saved);
  pass.stream.submit(ExpertCounts{.experts = r.selected, .counts = r.counts});
  if (has_losses()) {
    pass.part("router_loss");
    pass.stream.submit(RouterLoss{.scores = r.scores,
                                  .lse = r.lse,
                                  .counts = r.counts,
                                  .row_document = pass.pack.row_document,
                                  .state = pass.state,
                                  .sums = saved.scratch.sums,
                                  .slopes = r.slopes,
                                  .losses = saved.losses,
                                  .aux = aux_,
                                  .z = z_,
                                  .top_k = top_k_});
  }
  if (shared_fc1_) shared_forward(pass, saved);
}

// Selects the same experts when it runs again: the bias changes at the end of a step.
template <class T>
void Moe<T>::score(const PassContext& pass, const State& saved) const {
  const Routed& r = saved.routed;
  pass.part("router");
  pass.stream.submit(RouterForward<T>{.x = r.norm,
                                      .wr = router_.weight,
                                      .bias = state_.bias,
                                      .row_document = pass.pack.row_document,
                                      .logits = r.logits,
                                      .scores = r.scores,
                                      .lse = r.lse,
                                      .experts = r.selected,
                                      .weights = r.weights,
                                      .kind = kind_,
                                      .combine = combine_});
}

template <class T>
void Moe<T>::shared_forward(const PassContext& pass, const State& saved) const {
  const Routed& r = saved.routed;
  pass.part("shared_expert");
  shared_fc1_->forward(pass, r.norm, r.shared_fc1, r.shared_fc1_codes, AmaxFrom::producer);
  activate(pass, r.shared_fc1, {pass.pack.row_document}, r.shared_act,
           cleared_amax(pass, r.shared_fc2_codes.x_amax));
  shared_fc2_->forward(pass, r.shared_act, r.shared_mixed, r.shared_fc2_codes, AmaxFrom::producer);
}

template <class T>
void Moe<T>::place(const PassContext& pass, State& saved) const {
  const Routed& r = saved.routed;
  const Placed& p = saved.placed;
  pass.part("preprocess");
  pass.stream.submit(ExpertLayout{.experts = r.selected,
                                  .counts = r.counts,
                                  .start = p.start,
                                  .rows = p.rows,
                                  .pair_row = p.pair_row,
                                  .row_pair = p.row_pair,
                                  .capacity = scratch_.buffer.capacity,
                                  .padded = scratch_.buffer.padded});
  const bool counts = faulty("evaluation-counts-pairs", pass.training, true);
  if (counts) count_pairs(pass, saved);
}

template <class T>
void Moe<T>::count_pairs(const PassContext& pass, const State& saved) const {
  const Routed& r = saved.routed;
  const Placed& p = saved.placed;
  pass.stream.submit(CountPairs{.counts = r.counts,
                                .rows = p.rows,
                                .step = state_.step,
                                .total = state_.total,
                                .kept = state_.kept});
}

// Copies the experts' row counts to the host, so that shapes can follow the data: of this rank, or
// of all that share the experts. Ops are given at least one row.
template <class T>
UsedRows Moe<T>::read_rows(const PassContext& pass, State& saved) const {
  const MemoryRange read =
      range_of(scratch_.exchange ? saved.places.rows_of_ranks : saved.placed.rows);
  const std::size_t bytes = read.bytes;
  if (!saved.rows_on_host) saved.rows_on_host.emplace(pass.stream.device(), bytes);
  auto* const rows = static_cast<std::int32_t*>(saved.rows_on_host->data());
  pass.stream.copy(rows, read.data, bytes, CopyKind::device_to_host);
  pass.stream.synchronize();
  Device& device = pass.stream.device();
  device.host_reads(rows, bytes);
  ++device.counters.of(device.place.rank).expert_rows_read;
  UsedRows used;
  if (scratch_.exchange) {
    used = scratch_.exchange->used_rows(rows);
  } else {
    for (std::int64_t e = 0; e < experts_; ++e) used.of_source += rows[e];
  }
  const std::int64_t owned = scratch_.exchange ? used.of_owner : used.of_source;
  saved.rows_in_use = std::clamp<std::int64_t>(
      faulty("offload-of-as-many-rows-as-were-sent", owned, used.of_source), 0,
      scratch_.buffer.owner_rows);
  saved.used_rows = std::clamp<std::int64_t>(used.of_source, 1, scratch_.buffer.rows);
  return used;
}

template <class T>
void Moe<T>::run_experts(const PassContext& pass, State& saved) const {
  const Placed& p = saved.placed;
  pass.part("dispatch");
  if (scratch_.exchange) scratch_.exchange->gather_rows(pass, state_.layer, p.rows, saved.places);
  std::optional<UsedRows> used;
  if (host_sync_) used = read_rows(pass, saved);
  if (scratch_.exchange) scratch_.exchange->find_places(pass, p.start, used, saved.places);
  apply_experts(pass, saved);
  pass.part("combine");
  pass.stream.submit(Combine<T>{.y = first_rows(saved.y, saved.used_rows),
                                .weights = saved.routed.weights,
                                .pair_row = p.pair_row,
                                .shared = saved.routed.shared_mixed,
                                .row_document = pass.pack.row_document,
                                .out = saved.mixed});
  block_.residual(pass, saved.x, saved.mixed, saved.out);
}

template <class T>
void Moe<T>::apply_experts(const PassContext& pass, const State& saved) const {
  const Routed& r = saved.routed;
  const Placed& p = saved.placed;
  const std::int64_t rows = saved.used_rows;
  const Fp8Rows of_source = expert_rows(p, rows);
  const Tensor<T> buffer = first_rows(saved.buffer, rows), y = first_rows(saved.y, rows);
  pass.part("dispatch");
  const std::int64_t baked = pass.stream.device().recording() < 0 ? rows : scratch_.captured_rows;
  const std::int64_t dispatched = faulty("dispatch-of-the-captured-batchs-rows", rows, baked);
  Dispatch<T> dispatch{.x = r.norm,
                       .row_pair = p.row_pair.columns(0, dispatched),
                       .buffer = first_rows(buffer, dispatched),
                       .top_k = top_k_};
  if (amax_of_received() == AmaxFrom::producer)
    take_amax(dispatch, of_source, cleared_amax(pass, saved.fc1_codes.x_amax));
  pass.stream.submit(dispatch);
  if (!scratch_.exchange) return compute_experts(pass, saved, y);
  const Tensor<T> owned_y = first_rows(saved.scratch.owned_y, saved.places.used_rows);
  const ExpertExchange<T>& exchange = *scratch_.exchange;
  exchange.to_owners(pass, "dispatch", state_.layer, saved.places, buffer,
                     first_rows(saved.owned, saved.places.used_rows));
  compute_experts(pass, saved, owned_y);
  pass.part("combine");
  exchange.to_sources(pass, "combine", state_.layer, saved.places, owned_y, y);
}

template <class T>
Fp8Rows Moe<T>::rows_of_owner(const State& saved) const {
  if (!scratch_.exchange) return expert_rows(saved.placed, saved.used_rows);
  const ExpertPlaces& p = saved.places;
  const Tensor<std::int32_t> taken = p.taken.columns(0, p.used_rows);
  if (!fc1_.fp8) return {taken, p.own_start, p.own_rows};
  const std::int64_t segments = p.segment_rows.size();
  return {taken, tensor(p.segment_start.data, 1, segments),
          tensor(p.segment_rows.data, 1, segments)};
}

// The amaxes of rows that come from other ranks are taken where they arrive.
template <class T>
AmaxFrom Moe<T>::amax_of_received() const {
  const AmaxFrom from = scratch_.exchange ? AmaxFrom::operand : AmaxFrom::producer;
  return faulty("fp8-amaxes-of-sent-rows", from, AmaxFrom::producer);
}

template <class T>
void Moe<T>::compute_experts(const PassContext& pass, const State& saved, Tensor<T> y) const {
  const std::int64_t rows = y.rows;
  const Tensor<T> fc1 = first_rows(saved.fc1, rows), act = first_rows(saved.act, rows);
  pass.part("experts_fc1");
  multiply(pass, fc1_, saved, first_rows(saved.owned, rows), fc1, saved.fc1_codes,
           amax_of_received());
  pass.part("experts_act");
  // A padding row of the buffer has no pair, as a padding row of the pack has no document.
  activate(pass, fc1, rows_of_owner(saved), act, cleared_amax(pass, saved.fc2_codes.x_amax));
  pass.part("experts_fc2");
  multiply(pass, fc2_, saved, act, y, saved.fc2_codes, AmaxFrom::producer);
}

template <class T>
void Moe<T>::multiply(const PassContext& pass, const Parameter& weight, const State& saved,
                      Tensor<T> x, Tensor<T> y, const Fp8Saved& codes, AmaxFrom from) const {
  const Fp8Rows rows = rows_of_owner(saved);
  if constexpr (std::is_same_v<T, bf16>) {
    if (weight.fp8) return Fp8Linear(weight).forward(pass, rows, x, y, codes, from);
  }
  pass.stream.submit(ExpertForward<T>{.x = x,
                                      .w = weight_of<T>(weight),
                                      .start = rows.start,
                                      .rows = rows.rows,
                                      .row_pair = rows.row_document,
                                      .y = y});
}

template <class T>
void Moe<T>::multiply_backward(const PassContext& pass, const Parameter& weight, const State& saved,
                               Tensor<T> dy, Tensor<T> x, Tensor<T> dx, const Fp8Saved& codes,
                               AmaxFrom from) const {
  if constexpr (std::is_same_v<T, bf16>) {
    if (weight.fp8)
      return Fp8Linear(weight).backward(pass, rows_of_owner(saved), dy, x, dx, codes, from);
  }
  weight_gradients(pass, weight, saved, dy, x);
  input_gradient(pass, weight, saved, dy, dx);
}

template <class T>
void Moe<T>::input_gradient(const PassContext& pass, const Parameter& weight, const State& saved,
                            Tensor<T> dy, Tensor<T> dx) const {
  const Fp8Rows rows = rows_of_owner(saved);
  pass.stream.submit(ExpertInputGradient<T>{.dy = dy,
                                            .w = weight_of<T>(weight),
                                            .start = rows.start,
                                            .rows = rows.rows,
                                            .row_pair = rows.row_document,
                                            .dx = dx});
}

// One for each rank whose rows the experts have.
template <class T>
void Moe<T>::weight_gradients(const PassContext& pass, const Parameter& weight, const State& saved,
                              Tensor<T> dy, Tensor<T> x) const {
  const ExpertPlaces& p = saved.places;
  for (std::int64_t source = 0; source < weight.sources; ++source) {
    const Parameter of = weight.of_source(source);
    const auto segments = [&](Tensor<std::int32_t> all, Tensor<std::int32_t> alone) {
      return scratch_.exchange ? tensor(all.data + source * all.pitch, 1, all.cols) : alone;
    };
    pass.stream.submit(
        ExpertWeightGradient<T>{.dy = dy,
                                .x = x,
                                .start = segments(p.segment_start, saved.placed.start),
                                .rows = segments(p.segment_rows, saved.placed.rows),
                                .dw = of.microbatch_gradient});
    accumulate(pass, of);
  }
}

// ---- Backward -----------------------------------------------------------------------------------

template <class T>
void Moe<T>::backward(const PassContext& pass, const Saved<T>& saved, Tensor<T> dout,
                      Tensor<T> dx) const {
  backward_part(pass, saved, {}, dout, dx);
}
// Gradients pass from the experts to the router in dout and in the shared scratch: dmixed,
// dweights, dbuffer.
template <class T>
void Moe<T>::backward_part(const PassContext& pass, const Saved<T>& base, const Part& part,
                           Tensor<T> dout, Tensor<T> dx) const {
  const State& saved = static_cast<const State&>(base);
  if (part.has(Stage::experts)) experts_backward(pass, saved, dout);
  if (!part.has(Stage::router)) return;
  if (!recomputed_.moe) block_.recompute_norm(pass, saved.x, saved.routed.norm, saved.routed.rstd);
  if (shared_fc1_) shared_backward(pass, saved, dout);
  route_backward(pass, saved, dout, dx);
}

template <class T>
void Moe<T>::fill_outside(const Stream& stream, const Saved<T>& base, const Part& part,
                          const Ones& ones) const {
  const State& saved = static_cast<const State&>(base);
  if (!part.has(Stage::preprocess)) {
    const MemoryRange rows = range_of(saved.placed.pair_row);
    stream.fill(rows.data, 0, rows.bytes);
  }
  if (part.has(Stage::experts)) return;
  ones.fill(stream, saved.scratch.dweights);
  ones.fill(stream, saved.scratch.dbuffer);
  if (saved.scratch.dmixed) {
    ones.fill(stream, saved.scratch.dmixed);
    const MemoryRange amax = range_of(saved.routed.shared_fc2_codes.dy_amax);
    if (amax.bytes > 0) stream.fill(amax.data, 0, amax.bytes);
  }
  // The experts' stage computes the whole layer again.
  const MemoryRange codes = range_of(saved.routed.shared_fc1_codes.x);
  if (recomputed_.moe && codes.bytes > 0) stream.fill(codes.data, 0, codes.bytes);
}

template <class T>
void Moe<T>::experts_backward(const PassContext& pass, const State& saved, Tensor<T> dout) const {
  const Placed& p = saved.placed;
  const std::int64_t rows = saved.used_rows;
  const Fp8Rows of_source = expert_rows(p, rows);
  const Tensor<T> dy = first_rows(saved.scratch.dy, rows),
                  dbuffer = first_rows(saved.scratch.dbuffer, rows);
  const Tensor<T> dmixed = block_.residual_backward(pass, dout, saved.scratch.dmixed,
                                                    saved.routed.shared_fc2_codes.dy_amax);
  if (recomputed_.moe) {
    recompute(pass, saved);
  } else if (recomputed_.moe_act) {
    pass.part(StepLocation::kRecompute);
    const Fp8Rows own = rows_of_owner(saved);
    activate(pass, first_rows(saved.fc1, own.row_document.cols), own,
             first_rows(saved.act, own.row_document.cols));
  }
  pass.part("combine");
  CombineBackward<T> combine{.dout = dmixed,
                             .y = first_rows(saved.y, rows),
                             .weights = saved.routed.weights,
                             .pair_row = p.pair_row,
                             .row_pair = of_source.row_document,
                             .row_document = pass.pack.row_document,
                             .dy = dy,
                             .dweights = saved.scratch.dweights};
  if (amax_of_received() == AmaxFrom::producer)
    take_amax(combine, of_source, cleared_amax(pass, saved.fc2_codes.dy_amax));
  pass.stream.submit(combine);
  if (!scratch_.exchange) return differentiate_experts(pass, saved, dy, dbuffer);
  const std::int64_t owned = saved.places.used_rows;
  const Tensor<T> owned_dy = first_rows(saved.scratch.owned_dy, owned);
  const ExpertExchange<T>& exchange = *scratch_.exchange;
  exchange.to_owners(pass, "combine gradients", state_.layer, saved.places, dy, owned_dy);
  differentiate_owned(pass, saved, owned_dy);
  pass.part("dispatch");
  exchange.end_to_sources(pass, saved.places, dbuffer);
}

template <class T>
void Moe<T>::differentiate_owned(const PassContext& pass, const State& saved, Tensor<T> dy) const {
  const std::int64_t rows = dy.rows;
  const Tensor<T> dact = first_rows(saved.scratch.dact, rows),
                  dfc1 = first_rows(saved.scratch.dfc1, rows),
                  dbuffer = first_rows(saved.scratch.owned_dbuffer, rows);
  // All layers' codes of gradients lie in one memory, so both products of one come before the next.
  if (fc1_.fp8) {
    differentiate_experts(pass, saved, dy, dbuffer);
    pass.part("dispatch");
    return scratch_.exchange->begin_to_sources(pass, "dispatch gradients", state_.layer,
                                               saved.places, dbuffer);
  }
  pass.part("experts_fc2");
  input_gradient(pass, fc2_, saved, dy, dact);
  pass.part("experts_act");
  activate_backward(pass, first_rows(saved.fc1, rows), dact, rows_of_owner(saved), dfc1);
  pass.part("experts_fc1");
  input_gradient(pass, fc1_, saved, dfc1, dbuffer);
  pass.part("dispatch");
  scratch_.exchange->begin_to_sources(pass, "dispatch gradients", state_.layer, saved.places,
                                      dbuffer);
  pass.part("experts_fc2");
  weight_gradients(pass, fc2_, saved, dy, first_rows(saved.act, rows));
  pass.part("experts_fc1");
  weight_gradients(pass, fc1_, saved, dfc1, first_rows(saved.owned, rows));
}

template <class T>
void Moe<T>::differentiate_experts(const PassContext& pass, const State& saved, Tensor<T> dy,
                                   Tensor<T> dbuffer) const {
  const std::int64_t rows = dy.rows;
  const Tensor<T> dact = first_rows(saved.scratch.dact, rows),
                  dfc1 = first_rows(saved.scratch.dfc1, rows);
  pass.part("experts_fc2");
  multiply_backward(pass, fc2_, saved, dy, first_rows(saved.act, rows), dact, saved.fc2_codes,
                    amax_of_received());
  pass.part("experts_act");
  activate_backward(pass, first_rows(saved.fc1, rows), dact, rows_of_owner(saved), dfc1,
                    cleared_amax(pass, saved.fc1_codes.dy_amax));
  pass.part("experts_fc1");
  multiply_backward(pass, fc1_, saved, dfc1, first_rows(saved.owned, rows), dbuffer,
                    saved.fc1_codes, AmaxFrom::producer);
}

// All of the layer but its bookkeeping: where rows lie is saved, losses and pairs are counted once.
template <class T>
void Moe<T>::recompute(const PassContext& pass, const State& saved) const {
  const PassContext again = pass.recomputing();
  block_.recompute_norm(pass, saved.x, saved.routed.norm, saved.routed.rstd);
  score(again, saved);
  const bool counts = faulty("recompute-counts-pairs-again", false, true);
  if (counts) count_pairs(again, saved);
  apply_experts(again, saved);
  if (!shared_fc1_) return;
  again.part("shared_expert");
  shared_fc1_->forward(again, saved.routed.norm, saved.routed.shared_fc1,
                       saved.routed.shared_fc1_codes);
  activate(again, saved.routed.shared_fc1, {pass.pack.row_document}, saved.routed.shared_act);
}

template <class T>
void Moe<T>::shared_backward(const PassContext& pass, const State& saved, Tensor<T> dout) const {
  const Routed& r = saved.routed;
  if (recomputed_.shared_act && !recomputed_.moe) {
    pass.part(StepLocation::kRecompute);
    activate(pass, r.shared_fc1, {pass.pack.row_document}, r.shared_act);
  }
  pass.part("shared_expert");
  shared_fc2_->backward(pass, block_.mixed_gradient(pass, dout, saved.scratch.dmixed), r.shared_act,
                        saved.scratch.shared_dact, r.shared_fc2_codes,
                        block_.amax_of_mixed_gradient(pass, saved));
  activate_backward(pass, r.shared_fc1, saved.scratch.shared_dact, {pass.pack.row_document},
                    saved.scratch.shared_dfc1, cleared_amax(pass, r.shared_fc1_codes.dy_amax));
  shared_fc1_->backward(pass, saved.scratch.shared_dfc1, r.norm, saved.scratch.shared_dx,
                        r.shared_fc1_codes, AmaxFrom::producer);
}

template <class T>
void Moe<T>::route_backward(const PassContext& pass, const State& saved, Tensor<T> dout,
                            Tensor<T> dx) const {
  const Routed& r = saved.routed;
  pass.part("router");
  pass.stream.submit(RouterBackward{.logits = r.logits,
                                    .scores = r.scores,
                                    .lse = r.lse,
                                    .experts = r.selected,
                                    .dweights = saved.scratch.dweights,
                                    .slopes = r.slopes,
                                    .row_document = pass.pack.row_document,
                                    .dlogits = saved.scratch.dlogits,
                                    .kind = kind_,
                                    .combine = combine_,
                                    .aux = aux_ != 0,
                                    .z = z_ != 0});
  pass.stream.submit(RouterWeightGradient<T>{.dlogits = saved.scratch.dlogits,
                                             .x = r.norm,
                                             .row_document = pass.pack.row_document,
                                             .dwr = router_.microbatch_gradient});
  accumulate(pass, router_);
  pass.part("dispatch");
  pass.stream.submit(DispatchBackward<T>{.dbuffer = saved.scratch.dbuffer,
                                         .pair_row = saved.placed.pair_row,
                                         .dshared = saved.scratch.shared_dx,
                                         .dlogits = saved.scratch.dlogits,
                                         .wr = router_.weight,
                                         .row_document = pass.pack.row_document,
                                         .dx = saved.scratch.dnorm});
  block_.norm_backward(pass, saved, r.rstd, saved.scratch.dnorm, dout, dx);
}

template <class T>
void Moe<T>::activate(const PassContext& pass, Tensor<T> h, const Fp8Rows& rows, Tensor<T> a,
                      Tensor<std::uint32_t> amax) const {
  ActivationForward<T> op{.h = h, .row_document = rows.row_document, .a = a, .kind = activation_};
  take_amax(op, rows, amax);
  pass.stream.submit(op);
}
template <class T>
void Moe<T>::activate_backward(const PassContext& pass, Tensor<T> h, Tensor<T> da,
                               const Fp8Rows& rows, Tensor<T> dh,
                               Tensor<std::uint32_t> amax) const {
  ActivationBackward<T> op{
      .h = h, .da = da, .row_document = rows.row_document, .dh = dh, .kind = activation_};
  take_amax(op, rows, amax);
  pass.stream.submit(op);
}

template class Moe<float>;
template class Moe<bf16>;

}  // namespace lockstep
