#include "engine/nn/layer.h"

#include "kernels/core/fault.h"
#include "kernels/ops/accumulate.h"
#include "kernels/ops/fp8.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/residual.h"
#include "kernels/ops/rms_norm.h"

namespace lockstep {

Dropout dropout_site(const Scenario::Model& model, int layer, int site) {
  if (!has_dropout(model)) return {};
  const double p = model.dropout.value();
  const int first_site = faulty("dropout-layers-share-a-key", layer * 4, 0);
  return {.active = true,
          .site = static_cast<std::uint32_t>(first_site + site),
          .threshold = static_cast<std::uint32_t>(p * 4294967296.0),
          .scale = div(1.0f, sub(1.0f, static_cast<float>(p)))};
}

void accumulate(const PassContext& pass, const Parameter& parameter) {
  if (!parameter.gradient) return;
  pass.stream.submit(
      AccumulateGradient{.g = parameter.microbatch_gradient, .acc = parameter.gradient});
}

Tensor<float> total_of(const Parameter& parameter) {
  return parameter.gradient ? parameter.gradient : Tensor<float>{};
}

bool begins_sum(const PassContext& pass, const Parameter& parameter) {
  if (!parameter.first_writes) return false;
  const bool first = faulty("first-gradient-is-added", pass.first, false);
  return faulty("every-gradient-begins-the-sum", first, true);
}

Tensor<std::uint32_t> cleared_amax(const PassContext& pass, Tensor<std::uint32_t> amax) {
  if (!amax || !pass.exponents.measures || pass.recomputes) return {};
  pass.stream.submit(Fp8ClearAmax{.amax = amax});
  return amax;
}

template <class T>
Dropout PreNormBlock<T>::active(const PassContext& pass) const {
  return pass.training ? dropout_ : Dropout{};
}

template <class T>
Tensor<T> PreNormBlock<T>::make_norm(SavedMaker& maker, Tensor<T> passing) const {
  const Tensor<T> shared = faulty("recomputed-norm-is-saved-too", shared_norm_, Tensor<T>{});
  if (shared) return shared;
  return maker.make<T>("norm.out", RmsNormForward<T>::kName, gain_.weight.cols, passing);
}

template <class T>
void PreNormBlock<T>::norm(const PassContext& pass, Tensor<T> x, Tensor<T> y, Tensor<float> rstd,
                           Tensor<std::uint32_t> amax) const {
  pass.part("norm");
  pass.stream.submit(RmsNormForward<T>{.x = x,
                                       .gain = gain_.weight,
                                       .row_document = pass.pack.row_document,
                                       .y = y,
                                       .rstd = rstd,
                                       .eps = eps_,
                                       .amax = amax});
}

template <class T>
void PreNormBlock<T>::recompute_norm(const PassContext& pass, Tensor<T> x, Tensor<T> y,
                                     Tensor<float> rstd) const {
  if (!shared_norm_) return;
  pass.part(StepLocation::kRecompute);
  pass.stream.submit(RmsNormForward<T>{.x = x,
                                       .gain = gain_.weight,
                                       .row_document = pass.pack.row_document,
                                       .y = y,
                                       .rstd = rstd,
                                       .eps = eps_});
}

template <class T>
void PreNormBlock<T>::residual(const PassContext& pass, Tensor<T> x, Tensor<T> mixed,
                               Tensor<T> out) const {
  pass.part("residual");
  pass.stream.submit(ResidualForward<T>{.residual = x,
                                        .y = mixed,
                                        .row_document = pass.pack.row_document,
                                        .row_position = pass.pack.row_position,
                                        .row_number = pass.pack.row_number,
                                        .state = pass.state,
                                        .out = out,
                                        .dropout = active(pass)});
}

template <class T>
Tensor<T> PreNormBlock<T>::residual_backward(const PassContext& pass, Tensor<T> dout,
                                             Tensor<T> dmixed, Tensor<std::uint32_t> amax) const {
  Dropout dropout = active(pass);
  if (!dropout.active) return dout;
  pass.part("residual");
  dropout.site = faulty("backward-draws-another-mask", dropout.site, dropout.site ^ 2);
  pass.stream.submit(ResidualBackward<T>{.dout = dout,
                                         .row_document = pass.pack.row_document,
                                         .row_position = pass.pack.row_position,
                                         .row_number = pass.pack.row_number,
                                         .state = pass.state,
                                         .dy = dmixed,
                                         .dropout = dropout,
                                         .amax = cleared_amax(pass, amax)});
  return dmixed;
}

template <class T>
void PreNormBlock<T>::norm_backward(const PassContext& pass, const Saved<T>& saved,
                                    Tensor<float> rstd, Tensor<T> dy, Tensor<T> dout,
                                    Tensor<T> dx) const {
  pass.part("norm");
  pass.stream.submit(RmsNormBackward<T>{.x = saved.x,
                                        .rstd = rstd,
                                        .gain = gain_.weight,
                                        .dy = dy,
                                        .dresidual = dout,
                                        .row_document = pass.pack.row_document,
                                        .dx = dx,
                                        .dgain = gain_.microbatch_gradient,
                                        .partials = pass.pack.scan.partials(saved.x.cols),
                                        .amax = cleared_amax(pass, saved.dx_amax),
                                        .total = total_of(gain_)});
}

template class PreNormBlock<float>;
template class PreNormBlock<bf16>;

}  // namespace lockstep
