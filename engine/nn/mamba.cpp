#include "engine/nn/mamba.h"

#include "kernels/ops/residual.h"
#include "kernels/ops/rms_norm.h"

namespace lockstep {

MambaShape::MambaShape(const Scenario::Model::Mamba& mamba)
    : heads(static_cast<std::int32_t>(mamba.d_inner / mamba.head_dim)),
      groups(static_cast<std::int32_t>(mamba.groups)),
      state(static_cast<std::int32_t>(mamba.state)),
      chunk(static_cast<std::int32_t>(mamba.chunk)),
      d_inner(mamba.d_inner),
      channels(mamba.d_inner + 2 * mamba.groups * mamba.state) {}

template <class T>
MambaScratch<T>::MambaScratch(ScratchMaker maker, const Scenario& scenario) {
  const MambaShape shape(scenario.model.mamba);
  const std::int64_t rows = scenario.data.pack_length;
  if (has_dropout(scenario.model)) dmixed = maker.make<T>(rows, scenario.model.hidden);
  dgated = maker.make<T>(rows, shape.d_inner);
  dscan = maker.make<T>(rows, shape.d_inner);
  dconv = maker.make<T>(rows, shape.channels);
  din_proj = maker.make<T>(rows, shape.d_inner + shape.channels + shape.heads);
  dnorm = maker.make<T>(rows, scenario.model.hidden);
  dpre = maker.make<float>(rows, shape.channels);
  scan_rows = maker.make<float>(rows, 3 * std::int64_t{shape.heads});
}

// Each layer and slot has gradients of its own under cuda_graph.shared_memory.
template <class T>
MambaScratch<T> MambaScratch<T>::placed(SavedMaker& maker) const {
  MambaScratch own = *this;
  own.dmixed = maker.place_scratch("dmixed", dmixed);
  own.dgated = maker.place_scratch("dgated", dgated);
  own.dscan = maker.place_scratch("dscan", dscan);
  own.dconv = maker.place_scratch("dconv", dconv);
  own.din_proj = maker.place_scratch("din_proj", din_proj);
  own.dnorm = maker.place_scratch("dnorm", dnorm);
  own.dpre = maker.place_scratch("dpre", dpre);
  own.scan_rows = maker.place_scratch("scan_rows", scan_rows);
  return own;
}

template <class T>
Mamba<T>::Mamba(const Parameters& parameters, const Scenario::Model& model, int layer,
                const MambaScratch<T>& scratch, const Recomputed<T>& recomputed)
    : shape_(model.mamba),
      block_(parameters[parameters.of_layer(layer) + MambaParameter::norm_gain], model, layer,
             recomputed.norm),
      in_proj_(parameters[parameters.of_layer(layer) + MambaParameter::in_proj]),
      conv_weight_(parameters[parameters.of_layer(layer) + MambaParameter::conv_weight]),
      conv_bias_(parameters[parameters.of_layer(layer) + MambaParameter::conv_bias]),
      dt_bias_(parameters[parameters.of_layer(layer) + MambaParameter::dt_bias]),
      a_log_(parameters[parameters.of_layer(layer) + MambaParameter::a_log]),
      d_(parameters[parameters.of_layer(layer) + MambaParameter::d]),
      gate_gain_(parameters[parameters.of_layer(layer) + MambaParameter::gate_gain]),
      out_proj_(parameters[parameters.of_layer(layer) + MambaParameter::out_proj]),
      eps_(static_cast<float>(model.norm_eps)),
      scratch_(scratch),
      recomputed_(recomputed) {}

template <class T>
std::unique_ptr<Saved<T>> Mamba<T>::make_saved(SavedMaker& maker, Tensor<T> x) const {
  auto saved = std::make_unique<State>(scratch_.placed(maker));
  saved->x = x;
  saved->norm = block_.make_norm(maker, recomputed_.passing(Fp8Layer::mamba_in_proj));
  saved->rstd = maker.make_row("norm.rstd", RmsNormForward<T>::kName);
  const Recomputed<T>& again = recomputed_;
  saved->in_proj_codes = in_proj_.make_saved(maker, recomputed_);
  saved->in_proj =
      maker.make<T>("in_proj", LinearForward<T>::kName, in_proj_.outputs(), again.in_proj);
  saved->conv = maker.make<T>("conv", ConvForward<T>::kName, shape_.channels, again.conv);
  saved->scan = maker.make<T>("scan", ScanForward<T>::kName, shape_.d_inner, again.scan);
  saved->gated = maker.make<T>("gated_norm.out", GatedNormForward<T>::kName, shape_.d_inner,
                               again.gated ? again.gated : again.passing(Fp8Layer::mamba_out_proj));
  saved->gated_rstd = maker.make<float>("gated_norm.rstd", GatedNormForward<T>::kName,
                                        shape_.groups, again.gated_rstd);
  saved->out_proj_codes = out_proj_.make_saved(maker, recomputed_);
  saved->dout_amax = block_.dout_amax(saved->out_proj_codes.dy_amax);
  saved->mixed = maker.make<T>("proj", LinearForward<T>::kName, out_proj_.outputs(),
                               again.mamba ? again.mixed : Tensor<T>{});
  saved->out = maker.make<T>("out", ResidualForward<T>::kName, out_proj_.outputs());
  return saved;
}

template <class T>
void Mamba<T>::forward(const PassContext& pass, Saved<T>& base) const {
  State& saved = static_cast<State&>(base);
  block_.norm(pass, saved.x, saved.norm, saved.rstd,
              cleared_amax(pass, saved.in_proj_codes.x_amax));
  mix(pass, saved);
  pass.part("out_proj");
  out_proj_.forward(pass, saved.gated, saved.mixed, saved.out_proj_codes, AmaxFrom::producer);
  block_.residual(pass, saved.x, saved.mixed, saved.out);
}

template <class T>
void Mamba<T>::mix(const PassContext& pass, const State& saved) const {
  pass.part("in_proj");
  in_proj_.forward(pass, saved.norm, saved.in_proj, saved.in_proj_codes, AmaxFrom::producer);
  pass.part("conv");
  pass.stream.submit(ConvForward<T>{.x = shape_.xbc(saved.in_proj),
                                    .weight = conv_weight_.weight,
                                    .bias = conv_bias_.weight,
                                    .row_document = pass.pack.row_document,
                                    .row_position = pass.pack.row_position,
                                    .y = saved.conv});
  pass.part("scan");
  pass.stream.submit(ScanForward<T>{.xbc = saved.conv,
                                    .dt = shape_.dt(saved.in_proj),
                                    .dt_bias = dt_bias_.weight,
                                    .a_log = a_log_.weight,
                                    .d = d_.weight,
                                    .cu_seqlens = pass.pack.cu_seqlens,
                                    .cu_seqlens_padded = pass.pack.cu_seqlens_padded,
                                    .row_document = pass.pack.row_document,
                                    .chunk_document = pass.pack.chunk_document,
                                    .chunk_start = pass.pack.chunk_start,
                                    .chunk_rows = pass.pack.chunk_rows,
                                    .states = pass.pack.scan.states,
                                    .y = saved.scan,
                                    .heads = shape_.heads,
                                    .groups = shape_.groups,
                                    .state = shape_.state,
                                    .chunk = shape_.chunk});
  pass.part("gated_norm");
  pass.stream.submit(GatedNormForward<T>{.y = saved.scan,
                                         .z = shape_.z(saved.in_proj),
                                         .gain = gate_gain_.weight,
                                         .row_document = pass.pack.row_document,
                                         .o = saved.gated,
                                         .rstd = saved.gated_rstd,
                                         .groups = shape_.groups,
                                         .eps = eps_,
                                         .amax = cleared_amax(pass, saved.out_proj_codes.x_amax)});
}

template <class T>
void Mamba<T>::backward(const PassContext& pass, const Saved<T>& base, Tensor<T> dout,
                        Tensor<T> dx) const {
  const State& saved = static_cast<const State&>(base);
  const Tensor<T> dmixed =
      block_.residual_backward(pass, dout, saved.scratch.dmixed, saved.out_proj_codes.dy_amax);
  if (recomputed_.mamba) {
    block_.recompute_norm(pass, saved.x, saved.norm, saved.rstd);
    mix(pass.recomputing(), saved);
  }
  pass.part("out_proj");
  out_proj_.backward(pass, dmixed, saved.gated, saved.scratch.dgated, saved.out_proj_codes,
                     block_.amax_of_mixed_gradient(pass, saved));
  pass.part("gated_norm");
  // Three ops store the row that is in_proj's gradient.
  const Tensor<std::uint32_t> row_amax = cleared_amax(pass, saved.in_proj_codes.dy_amax);
  pass.stream.submit(GatedNormBackward<T>{.y = saved.scan,
                                          .z = shape_.z(saved.in_proj),
                                          .gain = gate_gain_.weight,
                                          .rstd = saved.gated_rstd,
                                          .dout = saved.scratch.dgated,
                                          .row_document = pass.pack.row_document,
                                          .dy = saved.scratch.dscan,
                                          .dz = shape_.z(saved.scratch.din_proj),
                                          .dgain = gate_gain_.microbatch_gradient,
                                          .groups = shape_.groups,
                                          .partials = pass.pack.scan.partials(shape_.d_inner),
                                          .amax = row_amax,
                                          .total = total_of(gate_gain_)});
  scan_backward(pass, saved, row_amax);
  pass.part("conv");
  pass.stream.submit(ConvBackward<T>{.x = shape_.xbc(saved.in_proj),
                                     .weight = conv_weight_.weight,
                                     .bias = conv_bias_.weight,
                                     .dy = saved.scratch.dconv,
                                     .row_document = pass.pack.row_document,
                                     .row_position = pass.pack.row_position,
                                     .dpre = saved.scratch.dpre,
                                     .dx = shape_.xbc(saved.scratch.din_proj),
                                     .dweight = conv_weight_.microbatch_gradient,
                                     .dbias = conv_bias_.microbatch_gradient,
                                     .amax = row_amax,
                                     .weight_total = total_of(conv_weight_),
                                     .bias_total = total_of(conv_bias_)});
  if (!recomputed_.mamba) block_.recompute_norm(pass, saved.x, saved.norm, saved.rstd);
  pass.part("in_proj");
  in_proj_.backward(pass, saved.scratch.din_proj, saved.norm, saved.scratch.dnorm,
                    saved.in_proj_codes, AmaxFrom::producer);
  block_.norm_backward(pass, saved, saved.rstd, saved.scratch.dnorm, dout, dx);
}

template <class T>
void Mamba<T>::scan_backward(const PassContext& pass, const State& saved,
                             Tensor<std::uint32_t> row_amax) const {
  pass.part("scan");
  pass.stream.submit(ScanBackward<T>{.xbc = saved.conv,
                                     .dt = shape_.dt(saved.in_proj),
                                     .dt_bias = dt_bias_.weight,
                                     .a_log = a_log_.weight,
                                     .d = d_.weight,
                                     .dy = saved.scratch.dscan,
                                     .cu_seqlens = pass.pack.cu_seqlens,
                                     .cu_seqlens_padded = pass.pack.cu_seqlens_padded,
                                     .row_document = pass.pack.row_document,
                                     .chunk_document = pass.pack.chunk_document,
                                     .chunk_start = pass.pack.chunk_start,
                                     .chunk_rows = pass.pack.chunk_rows,
                                     .states = pass.pack.scan.states,
                                     .dstates = pass.pack.scan.dstates,
                                     .rows = saved.scratch.scan_rows,
                                     .dxbc = saved.scratch.dconv,
                                     .ddt = shape_.dt(saved.scratch.din_proj),
                                     .ddt_bias = dt_bias_.microbatch_gradient,
                                     .da_log = a_log_.microbatch_gradient,
                                     .dd = d_.microbatch_gradient,
                                     .heads = shape_.heads,
                                     .groups = shape_.groups,
                                     .state = shape_.state,
                                     .chunk = shape_.chunk,
                                     .amax = row_amax,
                                     .dt_bias_total = total_of(dt_bias_),
                                     .a_log_total = total_of(a_log_),
                                     .d_total = total_of(d_)});
}

template struct MambaScratch<float>;
template struct MambaScratch<bf16>;
template class Mamba<float>;
template class Mamba<bf16>;

}  // namespace lockstep
