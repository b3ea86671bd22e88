// A bias-free linear layer: the three products of arithmetic.md 2.4 over one weight. A layer whose
// weight has codes multiplies these (fp8_linear.h), and keeps an Fp8Saved in each slot.
#pragma once

#include <cstdint>

#include "engine/nn/fp8_linear.h"
#include "kernels/ops/linear.h"

namespace lockstep {

// Multiply-adds from which a product is planned. A smaller one takes about as long as its launch,
// whichever kernel runs it, and the trial of an algorithm would pay only after thousands of calls,
// so our own kernel runs it (docs/decisions.md).
inline constexpr std::int64_t kWorthPlanning = std::int64_t{1} << 24;

template <class T>
class Linear {
 public:
  explicit Linear(const Parameter& weight) : weight_(weight) {}

  std::int64_t inputs() const { return weight_.weight.cols; }
  std::int64_t outputs() const { return weight_.weight.rows; }
  // Plans the products of packs of `rows` rows before anything runs: no algorithm is chosen during
  // a capture, and eager runs use the same ones. Only shapes matter, so the weight's memory stands
  // for all operands.
  void plan(Device& device, std::int64_t rows, Tensor<std::uint8_t> workspace) const {
    if (rows * inputs() * outputs() < kWorthPlanning) return;
    if (weight_.fp8) return Fp8Linear(weight_).plan(device, rows, workspace);
    const Tensor<T> w = weight_of<T>(weight_);
    const Tensor<T> x = tensor(w.data, rows, inputs()), y = tensor(w.data, rows, outputs());
    Backend& backend = device.backend();
    backend.plan(Submission(LinearForward<T>{.x = x, .w = w, .y = y, .workspace = workspace}));
    backend.plan(
        Submission(LinearInputGradient<T>{.dy = y, .w = w, .dx = x, .workspace = workspace}));
    const LinearWeightGradient<T> gradient{.dy = y, .x = x, .workspace = workspace};
    LinearWeightGradient<T> writes = gradient, adds = gradient;
    adds.acc = weight_.gradient;
    writes.dw = weight_.microbatch_gradient ? weight_.microbatch_gradient : weight_.gradient;
    if (weight_.microbatch_gradient || weight_.first_writes) backend.plan(Submission(writes));
    if (!weight_.microbatch_gradient) backend.plan(Submission(adds));
  }
  Fp8Saved make_saved(SavedMaker& maker, const Recomputed<T>& recomputed) const {
    return weight_.fp8 ? Fp8Linear(weight_).make_saved(maker, recomputed) : Fp8Saved{};
  }
  void forward(const PassContext& pass, Tensor<T> x, Tensor<T> y, const Fp8Saved& saved = {},
               AmaxFrom from = AmaxFrom::operand) const {
    if constexpr (std::is_same_v<T, bf16>) {
      if (weight_.fp8)
        return Fp8Linear(weight_).forward(pass, {pass.pack.row_document}, x, y, saved, from);
    }
    pass.stream.submit(
        LinearForward<T>{.x = x, .w = weight_of<T>(weight_), .y = y, .workspace = pass.workspace});
  }
  void weight_gradient(const PassContext& pass, Tensor<T> dy, Tensor<T> x) const {
    pass.stream.submit(LinearWeightGradient<T>{
        .dy = dy, .x = x, .dw = weight_.microbatch_gradient, .workspace = pass.workspace});
  }
  // Computes the weight gradient and adds it to the accumulator in one op, or begins the sum with
  // it; for weights with a single term per microbatch. A weight without an accumulator keeps the
  // gradient in microbatch_gradient, to be reduced across ranks.
  void accumulate_weight_gradient(const PassContext& pass, Tensor<T> dy, Tensor<T> x) const {
    LinearWeightGradient<T> op{.dy = dy, .x = x, .workspace = pass.workspace};
    if (!weight_.gradient) {
      op.dw = weight_.microbatch_gradient;
    } else if (begins_sum(pass, weight_)) {
      op.dw = weight_.gradient;
    } else {
      op.acc = weight_.gradient;
    }
    pass.stream.submit(op);
  }
  void input_gradient(const PassContext& pass, Tensor<T> dy, Tensor<T> dx) const {
    pass.stream.submit(LinearInputGradient<T>{
        .dy = dy, .w = weight_of<T>(weight_), .dx = dx, .workspace = pass.workspace});
  }
  void backward(const PassContext& pass, Tensor<T> dy, Tensor<T> x, Tensor<T> dx,
                const Fp8Saved& saved = {}, AmaxFrom from = AmaxFrom::operand) const {
    if constexpr (std::is_same_v<T, bf16>) {
      if (weight_.fp8)
        return Fp8Linear(weight_).backward(pass, {pass.pack.row_document}, dy, x, dx, saved, from);
    }
    accumulate_weight_gradient(pass, dy, x);
    input_gradient(pass, dy, dx);
  }

 private:
  const Parameter& weight_;
};

}  // namespace lockstep
