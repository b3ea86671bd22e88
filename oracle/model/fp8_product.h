// The three products of one linear layer in fp8 numerics, for one segment of rows: quantises the
// operands by the pass's recipe, and multiplies their codes (arithmetic.md 5.4 and 5.5).
#pragma once

#include "oracle/model/fp8_operands.h"
#include "oracle/ops/experts.h"
#include "oracle/ops/fp8_linear.h"
#include "scenarios/schema/words.h"

namespace lockstep::oracle {

class Fp8Product {
 public:
  Fp8Product(Fp8Pass& pass, int layer, Fp8Layer word, std::int64_t expert = 0)
      : pass_(pass), layer_(layer), word_(word), expert_(expert) {}

  // The operand X of the segment, and W [out, in].
  Fp8Operand input(const PackedBatch& pack, const Matrix<float>& x) {
    const std::uint32_t amax = amax_of(pack, x);
    return with(amax, quantised(pack, x, exponent(Fp8Role::x, amax), kE4m3));
  }
  Fp8Operand weight(const float* w, std::int64_t out, std::int64_t in) {
    const std::uint32_t amax = amax_of(w, out * in);
    return with(amax, quantised(w, out, in, exponent(Fp8Role::weight, amax)));
  }
  Fp8Operand output_gradient(const PackedBatch& pack, const Matrix<float>& dy) {
    const std::uint32_t amax = amax_of(pack, dy);
    return with(amax, quantised(pack, dy, exponent(Fp8Role::dy, amax), kE5m2));
  }
  // Takes note of what the backward pass leaves.
  void leave(const Fp8Operand& dy) const {
    const std::string name =
        "layers." + std::to_string(layer_) + "." + lockstep::word(word_) + ".dy_";
    note_written<float>(pass_.left, (name + "amax").c_str(), layer_, 1, {from_bits(dy.amax)});
    note_written<int>(pass_.left, (name + "k").c_str(), layer_, 1, {dy.exponent});
  }

  void forward(const PackedBatch& pack, const Matrix<float>& x, const float* w, Matrix<float>& y) {
    fp8_linear(input(pack, x), weight(w, y.cols, x.cols), y);
  }
  // Returns dX and sets dW.
  Matrix<float> backward(const PackedBatch& pack, const Matrix<float>& x, const float* w,
                         const Matrix<float>& dy, std::vector<float>& dw) {
    const Fp8Operand y8 = output_gradient(pack, dy);
    dw = fp8_weight_gradient(y8, input(pack, x));
    return fp8_input_gradient(y8, weight(w, dy.cols, x.cols));
  }

 private:
  static Fp8Operand with(std::uint32_t amax, Fp8Operand operand) {
    operand.amax = amax;
    return operand;
  }
  int exponent(Fp8Role role, std::uint32_t amax) {
    const std::size_t number = pass_.operands.number(layer_, word_, role, expert_);
    if (pass_.measures) {
      pass_.amaxes.resize(pass_.operands.size());
      pass_.amaxes[number] = std::max(pass_.amaxes[number], amax);
      if (fails(amax) && pass_.failure.empty()) pass_.failure = describe(role);
    }
    if (pass_.delayed != nullptr) return (*pass_.delayed)[number].exponent;
    return fp8_exponent(amax, pass_.operands.type(number));
  }
  std::string describe(Fp8Role role) const {
    const char* const names[] = {"x", "w", "dy"};
    return "layers." + std::to_string(layer_) + "." + lockstep::word(word_) + "." +
           names[static_cast<int>(role)] + " of expert " + std::to_string(expert_);
  }

  Fp8Pass& pass_;
  int layer_;
  Fp8Layer word_;
  std::int64_t expert_;
};

// The products of a layer's experts. A segment is the rows of one expert.
struct Fp8ExpertProducts {
  Fp8Pass& pass;
  int layer;
  const ExpertWeights<float>& weights;

  void forward(ExpertProduct which, std::size_t e, const PackedBatch& pack, const Matrix<float>& x,
               Matrix<float>& y) const {
    product(which, e).forward(pack, x, expert_weight(weights, which, e), y);
  }
  Matrix<float> backward(ExpertProduct which, std::size_t e, const PackedBatch& pack,
                         const Matrix<float>& x, const Matrix<float>& dy,
                         std::vector<float>& dw) const {
    return product(which, e).backward(pack, x, expert_weight(weights, which, e), dy, dw);
  }

 private:
  Fp8Product product(ExpertProduct which, std::size_t e) const {
    return {pass, layer, which == ExpertProduct::fc1 ? Fp8Layer::expert_fc1 : Fp8Layer::expert_fc2,
            static_cast<std::int64_t>(e)};
  }
};

}  // namespace lockstep::oracle
