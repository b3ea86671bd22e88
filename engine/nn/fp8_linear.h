// The products of a linear layer in fp8 numerics: arithmetic.md 5.4 and 5.5, both recipes. The
// weight's codes are those of Parameters::quantise; X and dY are quantised here, in the pass.
#pragma once

#include "engine/nn/layer.h"
#include "kernels/core/fp8.h"

namespace lockstep {

// The tensors of such a layer in a slot.
struct Fp8Saved {
  Tensor<e4m3> x;                         // [in, T up to 16], transposed.
  Tensor<std::uint32_t> x_amax, dy_amax;  // [1, 1], as all that follow.
  Tensor<std::int32_t> x_exponent, dy_exponent;
  Tensor<float> x_scale, dy_scale;  // 2^-exponent
  // X itself is saved, or computed again: its codes are made again for the weight's gradient.
  bool again = false;
  // A product that is computed again makes them.
  bool product_again = false;
};

class Fp8Linear {
 public:
  // The weight must have codes.
  explicit Fp8Linear(const Parameter& weight) : weight_(weight) {}

  template <class T>
  Fp8Saved make_saved(SavedMaker& maker, const Recomputed<T>& recomputed) const {
    const Fp8Layer layer = *weight_.fp8.layer;
    return make(maker, recomputed.codes_of(layer), recomputed.has_product(layer));
  }
  // As Linear::plan().
  void plan(Device& device, std::int64_t rows, Tensor<std::uint8_t> workspace) const;
  void forward(const PassContext& pass, Tensor<bf16> x, Tensor<bf16> y,
               const Fp8Saved& saved) const;
  // Adds the weight's gradient to its accumulator, or writes it where there is none.
  void backward(const PassContext& pass, Tensor<bf16> dy, Tensor<bf16> x, Tensor<bf16> dx,
                const Fp8Saved& saved) const;

 private:
  // `again`: the memory of all slots for the codes of X; absent if each slot saves them.
  Fp8Saved make(SavedMaker& maker, Tensor<e4m3> again, bool product_again) const;
  void cast_again(const PassContext& pass, Tensor<bf16> x, const Fp8Saved& saved) const;
  void weight_gradient(const PassContext& pass, const Fp8Saved& saved,
                       Tensor<e5m2> transposed) const;
  std::int64_t inputs() const { return weight_.weight.cols; }
  std::int64_t outputs() const { return weight_.weight.rows; }

  const Parameter& weight_;
};

}  // namespace lockstep
