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
  // Takes note of what the backward pass leaves of all segments.
  void leave(const std::vector<float>& amaxes, const std::vector<int>& exponents) const {
    const std::string name =
        "layers." + std::to_string(layer_) + "." + lockstep::word(word_) + ".dy_";
    note_written<float>(pass_.left, (name + "amax").c_str(), layer_, 1, amaxes);
    note_written<int>(pass_.left, (name + "k").c_str(), layer_, 1, exponents);
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

// What the products of one word of a layer's experts multiply, stored as a judge reads it: codes,
// amaxes and exponents of X [buffer rows, in] and W [E * out, in], one word an expert.
struct Fp8ExpertOperands {
  struct Stored {
    Matrix<float>*amaxes, *exponents, *codes;  // [1, E], [1, E], [rows, in]
    void put(std::size_t e, std::int64_t first, const Fp8Operand& operand) const {
      amaxes->values[e] = from_bits(operand.amax);
      exponents->values[e] = static_cast<float>(operand.exponent);
      std::copy(operand.codes.values.begin(), operand.codes.values.end(), codes->row(first));
    }
  };
  Stored x, w;
};
// The same of dY, behind the backward pass.
struct Fp8ExpertGradients {
  std::vector<float> amaxes;
  std::vector<int> exponents;
  std::vector<Fp8Operand> operands = {};  // By expert.
};

// The products of a layer's experts. A segment is the rows of one expert.
struct Fp8ExpertProducts {
  Fp8Pass& pass;
  int layer;
  const ExpertWeights<float>& weights;
  const Dispatch& dispatch;
  // By ExpertProduct; a forward pass fills one, a backward pass the other.
  Fp8ExpertOperands* operands = nullptr;
  Fp8ExpertGradients* gradients = nullptr;
  Mutant mutant = {};

  static Fp8Layer word(ExpertProduct which) {
    return which == ExpertProduct::fc1 ? Fp8Layer::expert_fc1 : Fp8Layer::expert_fc2;
  }
  void forward(ExpertProduct which, std::size_t e, const PackedBatch& pack, const Matrix<float>& x,
               Matrix<float>& y) const {
    Fp8Product product = this->product(which, e);
    const Fp8Operand x8 = product.input(pack, x);
    const Fp8Operand w8 = product.weight(expert_weight(weights, which, e), y.cols, x.cols);
    const Fp8ExpertOperands& to = operands[static_cast<int>(which)];
    to.x.put(e, dispatch.first[e], x8);
    to.w.put(e, static_cast<std::int64_t>(e) * y.cols, w8);
    fp8_linear(x8, w8, y);
  }
  // Returns dX and sets dW.
  Matrix<float> backward(ExpertProduct which, std::size_t e, const PackedBatch& pack,
                         const Matrix<float>& x, const Matrix<float>& dy,
                         std::vector<float>& dw) const {
    Fp8Product product = this->product(which, e);
    const Fp8Operand y8 = product.output_gradient(pack, dy);
    Fp8ExpertGradients& to = gradients[static_cast<int>(which)];
    to.amaxes.push_back(from_bits(y8.amax));
    to.exponents.push_back(y8.exponent);
    to.operands.push_back(y8);
    const Fp8Operand x8 = product.input(pack, x);
    const bool late = mutant("fp8-experts-rows-count-from-the-buffer");
    dw = late ? fp8_weight_gradient(behind_others(y8, e), behind_others(x8, e))
              : fp8_weight_gradient(y8, x8);
    return fp8_input_gradient(y8,
                              product.weight(expert_weight(weights, which, e), dy.cols, x.cols));
  }

 private:
  // Used by a planted error: the rows stand where they do in the buffer, behind rows of zeros.
  Fp8Operand behind_others(const Fp8Operand& operand, std::size_t e) const {
    const std::int64_t before = dispatch.first[e] % 128, cols = operand.codes.cols;
    Fp8Operand late{{before + operand.codes.rows, cols}, operand.exponent};
    std::copy(operand.codes.values.begin(), operand.codes.values.end(), late.codes.row(before));
    return late;
  }
  Fp8Product product(ExpertProduct which, std::size_t e) const {
    return {pass, layer, word(which), static_cast<std::int64_t>(e)};
  }
};

}  // namespace lockstep::oracle
