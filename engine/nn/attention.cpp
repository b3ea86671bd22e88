#include "engine/nn/attention.h"

#include <algorithm>

#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "kernels/ops/residual.h"
#include "kernels/ops/rms_norm.h"

namespace lockstep {

template <class T>
AttentionScratch<T>::AttentionScratch(ScratchMaker maker, const Scenario& scenario) {
  const Scenario::Model::Attention& a = scenario.model.attention;
  const std::int64_t rows = scenario.data.pack_length;
  if (has_dropout(scenario.model)) dmixed = maker.make<T>(rows, scenario.model.hidden);
  dcore = maker.make<T>(rows, a.heads * a.head_dim);
  dqkv = maker.make<T>(rows, (a.heads + 2 * a.kv_heads) * a.head_dim);
  dnorm = maker.make<T>(rows, scenario.model.hidden);
  delta = maker.make<float>(rows, a.heads);
  next_tile = maker.make_lasting<std::int32_t>(1, 2);
  table = maker.make_lasting<float>(rows, a.head_dim);
}

// Each layer and slot has gradients of its own under cuda_graph.shared_memory.
template <class T>
AttentionScratch<T> AttentionScratch<T>::placed(SavedMaker& maker) const {
  AttentionScratch own = *this;
  own.dmixed = maker.place_scratch("dmixed", dmixed);
  own.dcore = maker.place_scratch("dcore", dcore);
  own.dqkv = maker.place_scratch("dqkv", dqkv);
  own.dnorm = maker.place_scratch("dnorm", dnorm);
  own.delta = maker.place_scratch("delta", delta);
  return own;
}

CudnnShapes::CudnnShapes(const Scenario::Model::Attention& a, std::int64_t rows,
                         std::int64_t capacity, std::int64_t max_seqlen) {
  forward.qkv = backward.qkv = tensor<bf16>(nullptr, rows, (a.heads + 2 * a.kv_heads) * a.head_dim);
  forward.capacity = backward.capacity = capacity;
  forward.max_seqlen = backward.max_seqlen = max_seqlen;
  forward.heads = backward.heads = static_cast<std::int32_t>(a.heads);
  forward.kv_heads = backward.kv_heads = static_cast<std::int32_t>(a.kv_heads);
  forward.head_dim = backward.head_dim = static_cast<std::int32_t>(a.head_dim);
}

std::int64_t plan_cudnn(Device& device, const Scenario::Model::Attention& attention,
                        std::int64_t rows, std::int64_t capacity, std::int64_t max_seqlen) {
  const CudnnShapes shapes(attention, rows, capacity, max_seqlen);
  Backend& backend = device.backend();
  return std::max(backend.workspace_bytes(Submission(shapes.forward)),
                  backend.workspace_bytes(Submission(shapes.backward)));
}

template <class T>
SelfAttention<T>::SelfAttention(const Parameters& parameters, const Scenario::Model& model,
                                int layer, const AttentionScratch<T>& scratch,
                                const Recomputed<T>& recomputed)
    : block_(parameters[parameters.of_layer(layer) + AttentionParameter::norm_gain], model, layer,
             recomputed.norm),
      qkv_(parameters[parameters.of_layer(layer) + AttentionParameter::qkv]),
      proj_(parameters[parameters.of_layer(layer) + AttentionParameter::proj]),
      heads_(static_cast<std::int32_t>(model.attention.heads)),
      kv_heads_(static_cast<std::int32_t>(model.attention.kv_heads)),
      head_dim_(static_cast<std::int32_t>(model.attention.head_dim)),
      by_cudnn_(model.core_attention == CoreAttention::cudnn),
      scratch_(scratch),
      recomputed_(recomputed) {
  require(!by_cudnn_ || (std::is_same_v<T, bf16>), "cuDNN has no attention in fp32");
}

template <class T>
std::unique_ptr<Saved<T>> SelfAttention<T>::make_saved(SavedMaker& maker, Tensor<T> x) const {
  auto saved = std::make_unique<State>(scratch_.placed(maker));
  saved->x = x;
  saved->norm = block_.make_norm(maker, recomputed_.passing(Fp8Layer::qkv_linear));
  saved->rstd = maker.make_row("norm.rstd", RmsNormForward<T>::kName);
  saved->qkv_codes = qkv_.make_saved(maker, recomputed_);
  saved->qkv = maker.make<T>("qkv", Rope<T>::kName, qkv_.outputs());
  const char* const mixer = by_cudnn_ ? CudnnAttentionForward::kName : AttentionForward<T>::kName;
  saved->core = maker.make<T>("core_attn.out", mixer, proj_.inputs(), recomputed_.core);
  saved->lse = maker.make<float>("core_attn.lse", mixer, heads_, recomputed_.lse);
  saved->proj_codes = proj_.make_saved(maker, recomputed_);
  saved->dout_amax = block_.dout_amax(saved->proj_codes.dy_amax);
  saved->mixed = maker.make<T>("proj", LinearForward<T>::kName, proj_.outputs());
  saved->out = maker.make<T>("out", ResidualForward<T>::kName, proj_.outputs());
  return saved;
}

template <class T>
void SelfAttention<T>::rotate(const PassContext& pass, Tensor<T> qkv, Rotation rotation,
                              Tensor<std::uint32_t> amax) const {
  pass.stream.submit(Rope<T>{.qkv = qkv,
                             .table = scratch_.table,
                             .row_document = pass.pack.row_document,
                             .row_position = pass.pack.row_position,
                             .heads = heads_,
                             .kv_heads = kv_heads_,
                             .head_dim = head_dim_,
                             .backward = rotation == Rotation::inverse,
                             .amax = amax});
}

template <class T>
void SelfAttention<T>::mix(const PassContext& pass, const State& saved) const {
  pass.part("core_attn");
  if constexpr (std::is_same_v<T, bf16>) {
    if (by_cudnn_) {
      return pass.stream.submit(CudnnAttentionForward{.qkv = saved.qkv,
                                                      .lengths = pass.pack.cudnn.lengths,
                                                      .offsets = pass.pack.cudnn.offsets,
                                                      .row_document = pass.pack.row_document,
                                                      .o = saved.core,
                                                      .lse = saved.lse,
                                                      .workspace = pass.pack.cudnn.workspace,
                                                      .capacity = pass.pack.capacity(),
                                                      .max_seqlen = pass.pack.cudnn.max_seqlen,
                                                      .heads = heads_,
                                                      .kv_heads = kv_heads_,
                                                      .head_dim = head_dim_});
    }
  }
  const Tensor<std::int32_t> tokens = pass.pack.cu_seqlens, rows = pass.pack.cu_seqlens_padded;
  pass.stream.submit(AttentionForward<T>{
      .qkv = saved.qkv,
      .cu_seqlens = faulty("attention-reads-padded-lengths", tokens, rows),
      .cu_seqlens_padded = faulty("attention-reads-compact-starts", rows, tokens),
      .row_document = pass.pack.row_document,
      .o = saved.core,
      .lse = saved.lse,
      .heads = heads_,
      .kv_heads = kv_heads_,
      .head_dim = head_dim_,
      .amax = cleared_amax(pass, saved.proj_codes.x_amax)});
}

template <class T>
void SelfAttention<T>::mix_backward(const PassContext& pass, const State& saved) const {
  if constexpr (std::is_same_v<T, bf16>) {
    if (by_cudnn_) {
      Device& device = pass.stream.device();
      device.count(pass.stream, device.counters.of(device.place.rank).attention_by_cudnn);
      return pass.stream.submit(CudnnAttentionBackward{.qkv = saved.qkv,
                                                       .o = saved.core,
                                                       .lse = saved.lse,
                                                       .dout = saved.scratch.dcore,
                                                       .lengths = pass.pack.cudnn.lengths,
                                                       .offsets = pass.pack.cudnn.offsets,
                                                       .row_document = pass.pack.row_document,
                                                       .dqkv = saved.scratch.dqkv,
                                                       .workspace = pass.pack.cudnn.workspace,
                                                       .capacity = pass.pack.capacity(),
                                                       .max_seqlen = pass.pack.cudnn.max_seqlen,
                                                       .heads = heads_,
                                                       .kv_heads = kv_heads_,
                                                       .head_dim = head_dim_});
    }
  }
  pass.stream.submit(AttentionBackward<T>{.qkv = saved.qkv,
                                          .o = saved.core,
                                          .lse = saved.lse,
                                          .dout = saved.scratch.dcore,
                                          .cu_seqlens = pass.pack.cu_seqlens,
                                          .cu_seqlens_padded = pass.pack.cu_seqlens_padded,
                                          .row_document = pass.pack.row_document,
                                          .delta = saved.scratch.delta,
                                          .next_tile = scratch_.next_tile,
                                          .dqkv = saved.scratch.dqkv,
                                          .heads = heads_,
                                          .kv_heads = kv_heads_,
                                          .head_dim = head_dim_});
}

template <class T>
void SelfAttention<T>::forward(const PassContext& pass, Saved<T>& base) const {
  State& saved = static_cast<State&>(base);
  block_.norm(pass, saved.x, saved.norm, saved.rstd, cleared_amax(pass, saved.qkv_codes.x_amax));
  pass.part("qkv");
  qkv_.forward(pass, saved.norm, saved.qkv, saved.qkv_codes, AmaxFrom::producer);
  rotate(pass, saved.qkv, Rotation::forward);
  mix(pass, saved);
  pass.part("proj");
  proj_.forward(pass, saved.core, saved.mixed, saved.proj_codes,
                by_cudnn_ ? AmaxFrom::operand : AmaxFrom::producer);
  block_.residual(pass, saved.x, saved.mixed, saved.out);
}

template <class T>
void SelfAttention<T>::backward(const PassContext& pass, const Saved<T>& base, Tensor<T> dout,
                                Tensor<T> dx) const {
  const State& saved = static_cast<const State&>(base);
  const Tensor<T> dmixed =
      block_.residual_backward(pass, dout, saved.scratch.dmixed, saved.proj_codes.dy_amax);
  if (recomputed_.core_attn) mix(pass.recomputing(), saved);
  pass.part("proj");
  proj_.backward(pass, dmixed, saved.core, saved.scratch.dcore, saved.proj_codes,
                 block_.amax_of_mixed_gradient(pass, saved));
  pass.part("core_attn");
  mix_backward(pass, saved);
  rotate(pass, saved.scratch.dqkv, Rotation::inverse, cleared_amax(pass, saved.qkv_codes.dy_amax));
  block_.recompute_norm(pass, saved.x, saved.norm, saved.rstd);
  pass.part("qkv");
  qkv_.backward(pass, saved.scratch.dqkv, saved.norm, saved.scratch.dnorm, saved.qkv_codes,
                AmaxFrom::producer);
  block_.norm_backward(pass, saved, saved.rstd, saved.scratch.dnorm, dout, dx);
}

template struct AttentionScratch<float>;
template struct AttentionScratch<bf16>;
template class SelfAttention<float>;
template class SelfAttention<bf16>;

}  // namespace lockstep
