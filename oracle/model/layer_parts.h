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
    Matrix<Real>& y = make(name, out);
    if constexpr (Precision::kFp8) {
      fp8(parameter).forward(pass_.pack, x, weight(parameter), y);
    } else {
      linear<Precision>(pass_.pack, x, weight(parameter), y, pass_.mutant);
    }
    wrote("linear_forward.y", y);
    return y;
  }
  Matrix<Real> product_backward(const Matrix<Real>& x, const Matrix<Real>& dy, int parameter) {
    if constexpr (Precision::kFp8)
      return fp8(parameter).backward(pass_.pack, x, weight(parameter), dy, gradient(parameter));
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
  std::size_t place() const { return 1 + static_cast<std::size_t>(index_); }

  int first_;
};

}  // namespace lockstep::oracle
