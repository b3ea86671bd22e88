#include "engine/nn/mlp.h"

#include "kernels/ops/residual.h"
#include "kernels/ops/rms_norm.h"

namespace lockstep {

template <class T>
MlpScratch<T>::MlpScratch(ScratchMaker maker, const Scenario& scenario) {
  const Scenario::Model& model = scenario.model;
  const std::int64_t rows = scenario.data.pack_length;
  const std::int64_t width =
      model.mlp.hidden * (model.mlp.activation == MlpActivation::swiglu ? 2 : 1);
  if (has_dropout(model)) dmixed = maker.make<T>(rows, model.hidden);
  dact = maker.make<T>(rows, model.mlp.hidden);
  dfc1 = maker.make<T>(rows, width);
  dnorm = maker.make<T>(rows, model.hidden);
}

// Each layer and slot has gradients of its own under cuda_graph.shared_memory.
template <class T>
MlpScratch<T> MlpScratch<T>::placed(SavedMaker& maker) const {
  MlpScratch own = *this;
  own.dmixed = maker.place_scratch("dmixed", dmixed);
  own.dact = maker.place_scratch("dact", dact);
  own.dfc1 = maker.place_scratch("dfc1", dfc1);
  own.dnorm = maker.place_scratch("dnorm", dnorm);
  return own;
}

template <class T>
Mlp<T>::Mlp(const Parameters& parameters, const Scenario::Model& model, int layer,
            const MlpScratch<T>& scratch, const Recomputed<T>& recomputed)
    : block_(parameters[parameters.of_layer(layer) + MlpParameter::norm_gain], model, layer,
             recomputed.norm),
      fc1_(parameters[parameters.of_layer(layer) + MlpParameter::fc1]),
      fc2_(parameters[parameters.of_layer(layer) + MlpParameter::fc2]),
      activation_(model.mlp.activation == MlpActivation::swiglu ? Activation::swiglu
                                                                : Activation::squared_relu),
      scratch_(scratch),
      recomputed_(recomputed) {}

template <class T>
std::unique_ptr<Saved<T>> Mlp<T>::make_saved(SavedMaker& maker, Tensor<T> x) const {
  auto saved = std::make_unique<State>(scratch_.placed(maker));
  saved->x = x;
  saved->norm = block_.make_norm(maker, recomputed_.passing(Fp8Layer::mlp_fc1));
  saved->rstd = maker.make_row("norm.rstd", RmsNormForward<T>::kName);
  const Recomputed<T>& again = recomputed_;
  saved->fc1_codes = fc1_.make_saved(maker, recomputed_);
  saved->fc1 = maker.make<T>("fc1", LinearForward<T>::kName, fc1_.outputs(), again.mlp_fc1);
  saved->act = maker.make<T>("act", ActivationForward<T>::kName, fc2_.inputs(),
                             again.mlp_act ? again.mlp_act : again.passing(Fp8Layer::mlp_fc2));
  saved->fc2_codes = fc2_.make_saved(maker, recomputed_);
  saved->dout_amax = block_.dout_amax(saved->fc2_codes.dy_amax);
  saved->mixed = maker.make<T>("proj", LinearForward<T>::kName, fc2_.outputs(),
                               again.mlp ? again.mixed : Tensor<T>{});
  saved->out = maker.make<T>("out", ResidualForward<T>::kName, fc2_.outputs());
  return saved;
}

template <class T>
void Mlp<T>::expand(const PassContext& pass, const State& saved) const {
  pass.part("fc1");
  fc1_.forward(pass, saved.norm, saved.fc1, saved.fc1_codes, AmaxFrom::producer);
}

template <class T>
void Mlp<T>::activate(const PassContext& pass, const State& saved) const {
  pass.part("act");
  pass.stream.submit(ActivationForward<T>{.h = saved.fc1,
                                          .row_document = pass.pack.row_document,
                                          .a = saved.act,
                                          .kind = activation_,
                                          .amax = cleared_amax(pass, saved.fc2_codes.x_amax)});
}

template <class T>
void Mlp<T>::forward(const PassContext& pass, Saved<T>& base) const {
  State& saved = static_cast<State&>(base);
  block_.norm(pass, saved.x, saved.norm, saved.rstd, cleared_amax(pass, saved.fc1_codes.x_amax));
  expand(pass, saved);
  activate(pass, saved);
  pass.part("fc2");
  fc2_.forward(pass, saved.act, saved.mixed, saved.fc2_codes, AmaxFrom::producer);
  block_.residual(pass, saved.x, saved.mixed, saved.out);
}

template <class T>
void Mlp<T>::backward(const PassContext& pass, const Saved<T>& base, Tensor<T> dout,
                      Tensor<T> dx) const {
  const State& saved = static_cast<const State&>(base);
  const Tensor<T> dmixed =
      block_.residual_backward(pass, dout, saved.scratch.dmixed, saved.fc2_codes.dy_amax);
  if (recomputed_.mlp) {
    block_.recompute_norm(pass, saved.x, saved.norm, saved.rstd);
    expand(pass.recomputing(), saved);
  }
  if (recomputed_.mlp_act) activate(pass.recomputing(), saved);
  pass.part("fc2");
  fc2_.backward(pass, dmixed, saved.act, saved.scratch.dact, saved.fc2_codes,
                block_.amax_of_mixed_gradient(pass, saved));
  pass.part("act");
  pass.stream.submit(ActivationBackward<T>{.h = saved.fc1,
                                           .da = saved.scratch.dact,
                                           .row_document = pass.pack.row_document,
                                           .dh = saved.scratch.dfc1,
                                           .kind = activation_,
                                           .amax = cleared_amax(pass, saved.fc1_codes.dy_amax)});
  if (!recomputed_.mlp) block_.recompute_norm(pass, saved.x, saved.norm, saved.rstd);
  pass.part("fc1");
  fc1_.backward(pass, saved.scratch.dfc1, saved.norm, saved.scratch.dnorm, saved.fc1_codes,
                AmaxFrom::producer);
  block_.norm_backward(pass, saved, saved.rstd, saved.scratch.dnorm, dout, dx);
}

template struct MlpScratch<float>;
template struct MlpScratch<bf16>;
template class Mlp<float>;
template class Mlp<bf16>;

}  // namespace lockstep
