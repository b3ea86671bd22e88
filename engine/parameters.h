// The parameters of a model in the index order of arithmetic.md 0.5, with gradients and optimizer state.
#pragma once

#include <span>

#include "engine/tensor_pool.h"
#include "engine/trainer.h"
#include "kernels/initialize.h"

namespace lockstep {

class Parameters {
 public:
  // `copies`: 2-D weights that bf16 products read get a bf16 copy.
  Parameters(TensorPool& pool, const Scenario& scenario, bool copies);

  // Writes the initial weights, their copies, and zero moments.
  void initialize(const Stream& stream) const;
  // Makes the bf16 copies from the fp32 weights.
  void round(const Stream& stream) const;

  const std::vector<ParameterView>& views() const { return views_; }
  const ParameterView& operator[](int index) const { return views_[static_cast<std::size_t>(index)]; }

  // Index of the first parameter of a layer (its norm gain), of the final gain, and of the head (the embedding if
  // tied).
  int of_layer(int layer) const { return first_of_layer_[static_cast<std::size_t>(layer)]; }
  int final_gain() const { return final_gain_; }
  int head() const { return head_; }

  // Rows of all gradients in the sequence of the global norm: innermost axes of 2-D ones, single elements of 1-D ones.
  std::int64_t norm_rows() const { return norm_rows_; }

 private:
  struct Recipe {
    Init init;
    float std;
    std::int32_t width;
    bool copied = true;        // If drawn from a normal distribution: products in bf16 read a copy.
    bool accumulates = false;  // Its product adds into the accumulator at once: it needs no memory for g_m.
  };
  void add(TensorPool& pool, const std::string& name, int layer, std::int64_t rows, std::int64_t cols, Recipe recipe);
  void add_vector(TensorPool& pool, const std::string& name, int layer, std::int64_t size, Init init);
  void add_mamba(TensorPool& pool, const Scenario::Model& model, int layer, Recipe in, Recipe out);
  void add_attention(TensorPool& pool, const Scenario::Model& model, int layer, Recipe in, Recipe out);
  void add_mlp(TensorPool& pool, const Scenario::Model& model, int layer, Recipe in, Recipe out);
  void add_experts(TensorPool& pool, const Scenario::Model& model, int layer, Recipe in, Recipe out);

  std::vector<ParameterView> views_;
  std::vector<Recipe> recipes_;
  std::vector<int> first_of_layer_;
  int final_gain_ = 0;
  int head_ = 0;
  std::int64_t norm_rows_ = 0;
  bool copies_;
  std::uint32_t seed_low_, seed_high_;
};

}  // namespace lockstep
