// Dense MLP layer, symbol `-`.
#pragma once

#include "engine/nn/linear.h"
#include "kernels/ops/activation.h"

namespace lockstep {

// Gradients inside an MLP layer. All MLP layers share them, since one stream runs the layers one
// after the other.
template <class T>
struct MlpScratch {
  MlpScratch(ScratchMaker maker, const Scenario& scenario);
  // The same for one layer in one slot.
  MlpScratch placed(SavedMaker& maker) const;
  Tensor<T> dmixed, dact, dfc1, dnorm;
};

template <class T>
class Mlp : public Layer<T> {
 public:
  Mlp(const Parameters& parameters, const Scenario::Model& model, int layer,
      const MlpScratch<T>& scratch, const Recomputed<T>& recomputed);
  std::unique_ptr<Saved<T>> make_saved(SavedMaker& maker, Tensor<T> x) const override;
  void forward(const PassContext& pass, Saved<T>& saved) const override;
  void backward(const PassContext& pass, const Saved<T>& saved, Tensor<T> dout,
                Tensor<T> dx) const override;

 private:
  struct State : Saved<T> {
    explicit State(const MlpScratch<T>& own) : scratch(own) {}
    const MlpScratch<T> scratch;
    Tensor<T> norm, fc1, act, mixed;
    Tensor<float> rstd;
    Fp8Saved fc1_codes, fc2_codes;
  };
  void expand(const PassContext& pass, const State& saved) const;
  void activate(const PassContext& pass, const State& saved) const;
  PreNormBlock<T> block_;
  Linear<T> fc1_, fc2_;
  Activation activation_;
  const MlpScratch<T>& scratch_;
  const Recomputed<T>& recomputed_;
};

}  // namespace lockstep
