// A bias-free linear layer: the three products of arithmetic.md 2.4 over one weight.
#pragma once

#include "engine/nn/layer.h"
#include "kernels/linear.h"

namespace lockstep {

template <class T>
class Linear {
 public:
  explicit Linear(const ParameterView& weight) : weight_(weight) {}

  std::int64_t inputs() const { return weight_.weight.cols; }
  std::int64_t outputs() const { return weight_.weight.rows; }
  void forward(const PassContext& pass, Tensor<T> x, Tensor<T> y) const {
    pass.stream.submit(LinearForward<T>{.x = x, .w = weight_of<T>(weight_), .y = y});
  }
  void weight_gradient(const PassContext& pass, Tensor<T> dy, Tensor<T> x) const {
    pass.stream.submit(LinearWeightGradient<T>{.dy = dy, .x = x, .dw = weight_.microbatch_gradient});
  }
  void input_gradient(const PassContext& pass, Tensor<T> dy, Tensor<T> dx) const {
    pass.stream.submit(LinearInputGradient<T>{.dy = dy, .w = weight_of<T>(weight_), .dx = dx});
  }
  // Both gradients, and the one add into the accumulator.
  void backward(const PassContext& pass, Tensor<T> dy, Tensor<T> x, Tensor<T> dx) const {
    weight_gradient(pass, dy, x);
    accumulate(pass, weight_);
    input_gradient(pass, dy, dx);
  }

 private:
  const ParameterView& weight_;
};

}  // namespace lockstep
