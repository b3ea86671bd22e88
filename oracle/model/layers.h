// The mixers, forward and backward: from the norm's output to the stored product that enters the
// residual stream.
#pragma once

#include "oracle/model/layer_parts.h"
#include "oracle/model/moe.h"
#include "oracle/ops/activation.h"
#include "oracle/ops/attention.h"
#include "oracle/ops/attention_gradient.h"
#include "oracle/ops/conv.h"
#include "oracle/ops/gated_norm.h"
#include "oracle/ops/scan.h"
#include "oracle/ops/scan_gradient.h"

namespace lockstep::oracle {

// One layer of a pass.
template <class Precision>
class Layer : LayerParts<Precision> {
  using Parts = LayerParts<Precision>;
  using typename Parts::Real;

 public:
  Layer(Pass<Precision>& pass, int index)
      : Parts(pass, index), symbol_(pass.model.pattern[index]) {}

  // Computes the saved tensors, of which "proj" is the last.
  void forward(const Matrix<Real>& x) {
    if (symbol_ == 'M') mamba_forward(x);
    if (symbol_ == '*') attention_forward(x);
    if (symbol_ == '-') mlp_forward(x);
    if (symbol_ == 'E') MoeLayer<Precision>(pass_, index_).forward(x);
  }
  // Computes the gradient of the norm's output from that of "proj".
  Matrix<Real> backward(const Matrix<Real>& x, const Matrix<Real>& dy) {
    if (symbol_ == 'M') return mamba_backward(x, dy);
    if (symbol_ == '*') return attention_backward(x, dy);
    if (symbol_ == 'E') return MoeLayer<Precision>(pass_, index_).backward(x, dy);
    return mlp_backward(x, dy);
  }

 private:
  using Parts::gradient;
  using Parts::index_;
  using Parts::make;
  using Parts::model_;
  using Parts::pass_;
  using Parts::product;
  using Parts::product_backward;
  using Parts::saved;
  using Parts::weight;
  using Parts::widths_;
  using Parts::wrote;

  void wrote_columns(const char* name, const Matrix<Real>& values, std::int64_t first,
                     std::int64_t cols) const {
    note_written(pass_.written, name, index_, values, first, cols);
  }
  AttentionShape attention_shape() const {
    return {model_.attention.heads, model_.attention.kv_heads, model_.attention.head_dim};
  }
  void attention_forward(const Matrix<Real>& x) {
    const AttentionShape shape = attention_shape();
    Matrix<Real>& qkv = product("qkv", x, kQkv, widths_.qkv);
    rope<Precision>(pass_.pack, pass_.rope, shape.heads + shape.kv_heads, qkv, false, pass_.mutant);
    wrote("rope.qkv", qkv);
    Matrix<Real>& out = make("core_attn.out", widths_.attention);
    Matrix<Real>& lse = make("core_attn.lse", shape.heads);
    attention<Precision>(pass_.pack, shape, qkv, out, lse, pass_.mutant);
    wrote("attention_forward.o", out);
    wrote("attention_forward.lse", lse);
    product("proj", out, kProj, model_.hidden);
  }
  Matrix<Real> attention_backward(const Matrix<Real>& x, const Matrix<Real>& dy) {
    const AttentionShape shape = attention_shape();
    const Matrix<Real>& out = saved("core_attn.out");
    const Matrix<Real> d_out = product_backward(out, dy, kProj);
    Matrix<Real> dqkv = attention_gradient<Precision>(pass_.pack, shape, saved("qkv"), out,
                                                      saved("core_attn.lse"), d_out, pass_.mutant);
    wrote("attention_backward.dqkv", dqkv);
    rope<Precision>(pass_.pack, pass_.rope, shape.heads + shape.kv_heads, dqkv, true, pass_.mutant);
    wrote("rope.qkv", dqkv);
    return product_backward(x, dqkv, kQkv);
  }

  void mlp_forward(const Matrix<Real>& x) {
    const Matrix<Real>& h = product("fc1", x, kFc1, widths_.fc1);
    Matrix<Real>& a = make("act", model_.mlp.hidden);
    activation<Precision>(pass_.pack, model_.mlp.activation, h, a, pass_.mutant);
    wrote("activation_forward.a", a);
    product("proj", a, kFc2, model_.hidden);
  }
  Matrix<Real> mlp_backward(const Matrix<Real>& x, const Matrix<Real>& dy) {
    const Matrix<Real> da = product_backward(saved("act"), dy, kFc2);
    const Matrix<Real> dh = activation_gradient<Precision>(pass_.pack, model_.mlp.activation,
                                                           saved("fc1"), da, pass_.mutant);
    wrote("activation_backward.dh", dh);
    return product_backward(x, dh, kFc1);
  }

  ScanInput<Real> scan_input(const Matrix<Real>& xbc, const Matrix<Real>& in_proj) const {
    const ScanShape shape{widths_.heads, model_.mamba.head_dim, model_.mamba.groups,
                          model_.mamba.state, model_.mamba.chunk};
    return {shape, xbc, in_proj, weight(kDtBias), weight(kALog), weight(kD)};
  }
  Conv<Real> conv() const {
    return {weight(kConvWeight), weight(kConvBias), widths_.conv, model_.mamba.conv_width,
            pass_.mutant};
  }
  GatedNorm<Real> gated_norm(const Matrix<Real>& y, const Matrix<Real>& in_proj) const {
    return {y, in_proj, weight(kGate), model_.mamba.groups, static_cast<Real>(model_.norm_eps)};
  }
  void mamba_forward(const Matrix<Real>& x) {
    const Matrix<Real>& in_proj = product("in_proj", x, kInProj, widths_.in_proj);
    Matrix<Real>& xbc = make("conv", widths_.conv);
    conv().template forward<Precision>(pass_.pack, ConvInput<Real>{in_proj, model_.mamba.d_inner},
                                       xbc);
    wrote("conv_forward.y", xbc);
    Matrix<Real>& y = make("scan", model_.mamba.d_inner);
    scan<Precision>(pass_.pack, scan_input(xbc, in_proj), y, pass_.mutant);
    wrote("scan_forward.y", y);
    Matrix<Real>& normed = make("gated_norm.out", model_.mamba.d_inner);
    Matrix<Real>& rstd = make("gated_norm.rstd", model_.mamba.groups);
    gated_norm(y, in_proj).template forward<Precision>(pass_.pack, normed, rstd, pass_.mutant);
    wrote("gated_norm_forward.o", normed);
    wrote("gated_norm_forward.rstd", rstd);
    product("proj", normed, kOutProj, model_.hidden);
  }
  Matrix<Real> mamba_backward(const Matrix<Real>& x, const Matrix<Real>& dy) {
    const Matrix<Real>&in_proj = saved("in_proj"), &xbc = saved("conv"), &y = saved("scan");
    Matrix<Real> d_in_proj(in_proj.rows, in_proj.cols), d_scan(y.rows, y.cols),
        dxbc(xbc.rows, xbc.cols);
    const Matrix<Real> d_normed = product_backward(saved("gated_norm.out"), dy, kOutProj);
    gradient(kGate) = gated_norm(y, in_proj)
                          .template backward<Precision>(pass_.pack, saved("gated_norm.rstd"),
                                                        d_normed, d_scan, d_in_proj, pass_.mutant);
    const std::int64_t d_inner = model_.mamba.d_inner, dt = d_inner + widths_.conv;
    wrote("gated_norm_backward.dy", d_scan);
    wrote_columns("gated_norm_backward.dz", d_in_proj, 0, d_inner);
    wrote("gated_norm_backward.dgain", 1, gradient(kGate));
    ScanParameterGradients<Real> sums = scan_gradient<Precision>(
        pass_.pack, scan_input(xbc, in_proj), d_scan, dxbc, d_in_proj, pass_.mutant);
    gradient(kDtBias) = std::move(sums.dt_bias);
    gradient(kALog) = std::move(sums.a_log);
    gradient(kD) = std::move(sums.d);
    wrote("scan_backward.dxbc", dxbc);
    wrote_columns("scan_backward.ddt", d_in_proj, dt, widths_.heads);
    wrote("scan_backward.ddt_bias", 1, gradient(kDtBias));
    wrote("scan_backward.da_log", 1, gradient(kALog));
    wrote("scan_backward.dd", 1, gradient(kD));
    conv().template backward<Precision>(pass_.pack, ConvInput<Real>{in_proj, model_.mamba.d_inner},
                                        dxbc, d_in_proj, gradient(kConvWeight),
                                        gradient(kConvBias));
    wrote_columns("conv_backward.dx", d_in_proj, d_inner, widths_.conv);
    wrote("conv_backward.dweight", widths_.conv, gradient(kConvWeight));
    wrote("conv_backward.dbias", 1, gradient(kConvBias));
    return product_backward(x, d_in_proj, kInProj);
  }

  char symbol_;
};

}  // namespace lockstep::oracle
