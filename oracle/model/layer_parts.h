// Data that the layers of a pass share: where they read weights, and where they leave results.
#pragma once

#include "oracle/model/fp8_product.h"
#include "oracle/model/layout.h"
#include "oracle/model/saved.h"
#include "oracle/model/statistics.h"
#include "oracle/model/written.h"
#include "oracle/ops/linear.h"
#include "oracle/ops/rope.h"

namespace lockstep::oracle {

// Data that the ops of a pass share.
template <class Precision, class Real = typename Precision::Real>
struct Pass {
  const Scenario::Model& model;
  const Layout& layout;
  const RopeTable<Real>& rope;
  const PackedBatch& pack;
  const std::vector<std::vector<Real>>& weights;
  const std::vector<std::vector<Real>>&
      expert_bias;  // Per symbol of the pattern; empty where there is none.
  Real inv_m;       // 1 / microbatches of the step, on all ranks.
  std::vector<std::vector<Real>>& gradients;  // For this microbatch, by parameter index.
  std::vector<ExpertStatistics<Real>>&
      experts;  // For this microbatch, one entry per layer of experts.
  Saved<Real>& saved;
  Mutant mutant;
  Fp8Pass* fp8 = nullptr;      // With fp8 numerics.
  Written* written = nullptr;  // The values that each op wrote, if they are kept.
};

template <class Precision>
class LayerParts {
 protected:
  using Real = typename Precision::Real;

  LayerParts(Pass<Precision>& pass, int index)
      : pass_(pass),
        model_(pass.model),
        widths_(pass.model),
        index_(index),
        first_(pass.layout.first[index]) {}

  // Notes what an op of this layer wrote.
  template <class Number>
  void wrote(const char* name, const Matrix<Number>& values) const {
    note_written(pass_.written, name, index_, values);
  }
  template <class Number>
  void wrote(const char* name, std::int64_t rows, const std::vector<Number>& values) const {
    note_written(pass_.written, name, index_, rows, values);
  }
  const Real* weight(int parameter) const { return pass_.weights[first_ + parameter].data(); }
  std::vector<Real>& gradient(int parameter) { return pass_.gradients[first_ + parameter]; }
  const Matrix<Real>& saved(std::string_view name) const { return pass_.saved.get(place(), name); }
  Matrix<Real>& make(std::string_view name, std::int64_t cols) {
    return make(name, pass_.pack.rows, cols);
  }
  Matrix<Real>& make(std::string_view name, std::int64_t rows, std::int64_t cols) {
    return pass_.saved.make(place(), name, rows, cols);
  }
  Matrix<Real>& product(std::string_view name, const Matrix<Real>& x, int parameter,
                        std::int64_t out) {
    if constexpr (Precision::kFp8) {
      return fp8_product(name, x, parameter, out);
    } else {
      Matrix<Real>& y = make(name, out);
      linear<Precision>(pass_.pack, x, weight(parameter), y, pass_.mutant);
      wrote("linear_forward.y", y);
      return y;
    }
  }
  Matrix<Real> product_backward(const Matrix<Real>& x, const Matrix<Real>& dy, int parameter) {
    if constexpr (Precision::kFp8) return fp8_product_backward(x, dy, parameter);
    gradient(parameter) = linear_weight_gradient<Precision>(pass_.pack, dy, x, pass_.mutant);
    wrote("linear_weight_gradient.dw", dy.cols, gradient(parameter));
    Matrix<Real> dx =
        linear_input_gradient<Precision>(pass_.pack, dy, weight(parameter), x.cols, pass_.mutant);
    wrote("linear_input_gradient.dx", dx);
    return dx;
  }

  Pass<Precision>& pass_;
  const Scenario::Model& model_;
  Widths widths_;
  int index_;

 private:
  Fp8Product fp8(int parameter) const {
    return {*pass_.fp8, index_, fp8_layer(model_.pattern[index_], parameter)};
  }
  // Notes what the ops that quantise an operand wrote.
  void quantised_to(const Fp8Operand& operand) const {
    wrote("fp8_amax.amax", 1, std::vector<float>{from_bits(operand.amax)});
    wrote("fp8_exponent.k", 1, std::vector<int>{operand.exponent});
    const Matrix<std::uint8_t>& codes = operand.codes;
    wrote("fp8_cast.codes", codes);
    wrote("fp8_cast.transposed",
          transposed(codes.values.data(), codes.rows, codes.cols, codes.cols));
  }
  void keep(const std::string& name, const Fp8Operand& operand) {
    quantised_to(operand);
    make(name + "_amax", 1, 1).values = {from_bits(operand.amax)};
    make(name + "_k", 1, 1).values = {static_cast<Real>(operand.exponent)};
    make(name + "8", operand.codes.rows, operand.codes.cols)
        .values.assign(operand.codes.values.begin(), operand.codes.values.end());
  }
  Matrix<Real>& fp8_product(std::string_view name, const Matrix<Real>& x, int parameter,
                            std::int64_t out) {
    Fp8Product product = fp8(parameter);
    const Fp8Operand x8 = product.input(pass_.pack, x);
    const Fp8Operand w8 = product.weight(weight(parameter), out, x.cols);
    const std::string layer = lockstep::word(fp8_layer(model_.pattern[index_], parameter));
    keep(layer + ".x", x8);
    keep(layer + ".w", w8);
    Matrix<Real>& y = make(name, out);
    fp8_linear(x8, w8, y);
    wrote("fp8_linear_forward.y", y);
    return y;
  }
  Matrix<Real> fp8_product_backward(const Matrix<Real>& x, const Matrix<Real>& dy, int parameter) {
    Fp8Product product = fp8(parameter);
    const Fp8Operand y8 = product.output_gradient(pass_.pack, dy);
    quantised_to(y8);
    product.leave({from_bits(y8.amax)}, {y8.exponent});
    gradient(parameter) = fp8_weight_gradient(y8, product.input(pass_.pack, x));
    wrote("fp8_linear_weight_gradient.dw", dy.cols, gradient(parameter));
    Matrix<Real> dx = fp8_input_gradient(y8, product.weight(weight(parameter), dy.cols, x.cols));
    wrote("fp8_linear_input_gradient.dx", dx);
    return dx;
  }
  std::size_t place() const { return 1 + static_cast<std::size_t>(index_); }

  int first_;
};

}  // namespace lockstep::oracle
