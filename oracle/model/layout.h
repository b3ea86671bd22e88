// The parameters of a model in their index order, arithmetic.md 0.5.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep::oracle {

// `router` is normal too, but always read as fp32.
enum class Start : std::uint8_t { zero, one, normal, scaled_normal, router, conv, dt_bias, a_log };

struct ParameterLayout {
  std::string name;
  int layer = -1;
  std::int64_t rows = 0, cols = 0;  // A vector is [1, n].
  bool is_vector = false;
  Start start = Start::zero;

  // True for weights of products and the embedding, which bf16 numerics reads as bf16 copies.
  bool has_copy() const { return start == Start::normal || start == Start::scaled_normal; }
};

// Indices of a layer's parameters, counted from its first.
enum MambaParameter { kInProj = 1, kConvWeight, kConvBias, kDtBias, kALog, kD, kGate, kOutProj };
enum AttentionParameter { kQkv = 1, kProj };
enum MlpParameter { kFc1 = 1, kFc2 };
enum MoeParameter { kRouter = 1, kExpertFc1, kExpertFc2, kSharedFc1, kSharedFc2 };

// The name of a layer's product in fp8 numerics; not for experts, which have one each.
inline Fp8Layer fp8_layer(char symbol, int parameter) {
  if (symbol == '*') return parameter == kQkv ? Fp8Layer::qkv_linear : Fp8Layer::attn_proj;
  if (symbol == '-') return parameter == kFc1 ? Fp8Layer::mlp_fc1 : Fp8Layer::mlp_fc2;
  if (symbol == 'E') return parameter == kSharedFc1 ? Fp8Layer::shared_fc1 : Fp8Layer::shared_fc2;
  return parameter == kInProj ? Fp8Layer::mamba_in_proj : Fp8Layer::mamba_out_proj;
}

struct Layout {
  std::vector<ParameterLayout> parameters;
  std::vector<int> first;  // Index of each layer's gain.
  int final_gain = 0;
  int head = 0;  // 0, which is the embedding, if tied.
};

Layout make_layout(const Scenario::Model& model);

// [E] zeros for each layer whose experts have a bias, [] for the others.
template <class Real>
std::vector<std::vector<Real>> no_expert_bias(const Scenario::Model& model) {
  std::vector<std::vector<Real>> bias(model.pattern.size());
  for (std::size_t layer = 0; layer < bias.size(); ++layer) {
    if (model.pattern[layer] == 'E' && model.moe.expert_bias) bias[layer].resize(model.moe.experts);
  }
  return bias;
}

// Widths that follow from the model.
struct Widths {
  explicit Widths(const Scenario::Model& model)
      : heads(model.mamba.d_inner / model.mamba.head_dim),
        bc(model.mamba.groups * model.mamba.state),
        conv(model.mamba.d_inner + 2 * bc),
        in_proj(model.mamba.d_inner + conv + heads),
        qkv((model.attention.heads + 2 * model.attention.kv_heads) * model.attention.head_dim),
        attention(model.attention.heads * model.attention.head_dim),
        fc1(model.mlp.hidden * gated(model)),
        expert_fc1(model.moe.hidden * gated(model)),
        shared_fc1(model.moe.shared_hidden * gated(model)) {}
  std::int64_t heads, bc, conv,
      in_proj;  // Mamba: heads, width of B and of C, of the convolution, of in_proj.
  std::int64_t qkv, attention;
  std::int64_t fc1, expert_fc1, shared_fc1;  // The experts use the activation of the MLP.

 private:
  static int gated(const Scenario::Model& model) {
    return model.mlp.activation == MlpActivation::swiglu ? 2 : 1;
  }
};

}  // namespace lockstep::oracle
