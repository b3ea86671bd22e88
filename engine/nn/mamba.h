// Mamba-2 layer, symbol `M`: in_proj, convolution, chunk scan, gated norm, out_proj.
#pragma once

#include "engine/nn/linear.h"
#include "kernels/ops/conv.h"
#include "kernels/ops/gated_norm.h"
#include "kernels/ops/scan.h"

namespace lockstep {

// Widths of the fused in_proj row [z | x, B, C | dt].
struct MambaShape {
  explicit MambaShape(const Scenario::Model::Mamba& mamba);
  std::int32_t heads, groups, state, chunk;
  // channels = d_inner + 2 * groups * state: the convolution's width.
  std::int64_t d_inner, channels;

  template <class T>
  Tensor<T> z(Tensor<T> row) const {
    return row.columns(0, d_inner);
  }
  template <class T>
  Tensor<T> xbc(Tensor<T> row) const {
    return row.columns(d_inner, channels);
  }
  template <class T>
  Tensor<T> dt(Tensor<T> row) const {
    return row.columns(d_inner + channels, heads);
  }
};

template <class T>
struct MambaScratch {
  MambaScratch(ScratchMaker maker, const Scenario& scenario);
  // The same for one layer in one slot.
  MambaScratch placed(SavedMaker& maker) const;
  Tensor<T> dmixed, dgated, dscan, dconv, din_proj, dnorm;
  Tensor<float> dpre;       // [T, channels]
  Tensor<float> scan_rows;  // [T, 3 * heads]
};

template <class T>
class Mamba : public Layer<T> {
 public:
  Mamba(const Parameters& parameters, const Scenario::Model& model, int layer,
        const MambaScratch<T>& scratch, const Recomputed<T>& recomputed);
  std::unique_ptr<Saved<T>> make_saved(SavedMaker& maker, Tensor<T> x) const override;
  void forward(const PassContext& pass, Saved<T>& saved) const override;
  void backward(const PassContext& pass, const Saved<T>& saved, Tensor<T> dout,
                Tensor<T> dx) const override;

 private:
  struct State : Saved<T> {
    explicit State(const MambaScratch<T>& own) : scratch(own) {}
    const MambaScratch<T> scratch;
    Tensor<T> norm, in_proj, conv, scan, gated, mixed;
    Tensor<float> rstd, gated_rstd;
    Fp8Saved in_proj_codes, out_proj_codes;
  };
  // From the norm's output to the gated norm's.
  void mix(const PassContext& pass, const State& saved) const;
  // `row_amax`: that of in_proj's gradient.
  void scan_backward(const PassContext& pass, const State& saved,
                     Tensor<std::uint32_t> row_amax) const;

  MambaShape shape_;
  PreNormBlock<T> block_;
  Linear<T> in_proj_;
  const Parameter &conv_weight_, &conv_bias_, &dt_bias_, &a_log_, &d_, &gate_gain_;
  Linear<T> out_proj_;
  float eps_;
  const MambaScratch<T>& scratch_;
  const Recomputed<T>& recomputed_;
};

}  // namespace lockstep
