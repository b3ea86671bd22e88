// Attention layer with grouped query heads and RoPE, symbol `*`.
#pragma once

#include "engine/nn/linear.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/cudnn_attention.h"
#include "kernels/ops/rope.h"

namespace lockstep {

template <class T>
struct AttentionScratch {
  AttentionScratch(ScratchMaker maker, const Scenario& scenario);
  // The same for one layer in one slot.
  AttentionScratch placed(SavedMaker& maker) const;
  Tensor<T> dmixed, dcore, dqkv, dnorm;
  Tensor<float> delta;             // [T, heads]
  Tensor<std::int32_t> next_tile;  // [1, 2]
  // [pack_length, head_dim]: RoPE's cosines and sines (arithmetic.md 2.5), written once.
  Tensor<float> table;
};

// cuDNN's ops for packs of this shape, without memory: planning looks at shapes only.
struct CudnnShapes {
  CudnnShapes(const Scenario::Model::Attention& attention, std::int64_t rows, std::int64_t capacity,
              std::int64_t max_seqlen);
  CudnnAttentionForward forward;
  CudnnAttentionBackward backward;
};
// Plans cuDNN's calls for packs of this shape, so that no choice is made during a capture. Returns
// the bytes of workspace that the larger of the two ops needs.
std::int64_t plan_cudnn(Device& device, const Scenario::Model::Attention& attention,
                        std::int64_t rows, std::int64_t capacity, std::int64_t max_seqlen);

template <class T>
class SelfAttention : public Layer<T> {
 public:
  SelfAttention(const Parameters& parameters, const Scenario::Model& model, int layer,
                const AttentionScratch<T>& scratch, const Recomputed<T>& recomputed);
  std::unique_ptr<Saved<T>> make_saved(SavedMaker& maker, Tensor<T> x) const override;
  void forward(const PassContext& pass, Saved<T>& saved) const override;
  void backward(const PassContext& pass, const Saved<T>& saved, Tensor<T> dout,
                Tensor<T> dx) const override;

 private:
  struct State : Saved<T> {
    explicit State(const AttentionScratch<T>& own) : scratch(own) {}
    const AttentionScratch<T> scratch;
    Tensor<T> norm, qkv, core, mixed;
    Tensor<float> rstd, lse;
    Fp8Saved qkv_codes, proj_codes;
  };
  void mix(const PassContext& pass, const State& saved) const;
  void mix_backward(const PassContext& pass, const State& saved) const;
  enum class Rotation : std::uint8_t { forward, inverse };
  void rotate(const PassContext& pass, Tensor<T> qkv, Rotation rotation,
              Tensor<std::uint32_t> amax = {}) const;
  PreNormBlock<T> block_;
  Linear<T> qkv_, proj_;
  std::int32_t heads_, kv_heads_, head_dim_;
  bool by_cudnn_;
  const AttentionScratch<T>& scratch_;
  const Recomputed<T>& recomputed_;
};

}  // namespace lockstep
