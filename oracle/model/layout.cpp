#include "oracle/model/layout.h"

#include <stdexcept>

namespace lockstep::oracle {
namespace {

class Builder {
 public:
  explicit Builder(const Scenario::Model& model) : model_(model), widths_(model) {}

  Layout build() {
    const std::int64_t d = model_.hidden;
    matrix("embedding.weight", model_.vocab, d, Start::normal);
    for (layer_ = 0; layer_ < static_cast<int>(model_.pattern.size()); ++layer_) {
      layout_.first.push_back(count());
      vector("norm.gain", d, Start::one);
      layer(model_.pattern[layer_]);
    }
    layer_ = -1;
    layout_.final_gain = count();
    vector("final_norm.gain", d, Start::one);
    layout_.head = model_.tied_embedding ? 0 : count();
    if (!model_.tied_embedding) matrix("head.weight", model_.vocab, d, Start::normal);
    return std::move(layout_);
  }

 private:
  int count() const { return static_cast<int>(layout_.parameters.size()); }
  std::string full(const std::string& name) const {
    return layer_ < 0 ? name : "layers." + std::to_string(layer_) + "." + name;
  }
  void matrix(const std::string& name, std::int64_t rows, std::int64_t cols, Start start) {
    layout_.parameters.push_back({full(name), layer_, rows, cols, false, start});
  }
  void vector(const std::string& name, std::int64_t n, Start start) {
    layout_.parameters.push_back({full(name), layer_, 1, n, true, start});
  }

  void layer(char symbol) {
    const std::int64_t d = model_.hidden;
    switch (symbol) {
      case 'M':
        matrix("in_proj.weight", widths_.in_proj, d, Start::normal);
        matrix("conv.weight", widths_.conv, model_.mamba.conv_width, Start::conv);
        vector("conv.bias", widths_.conv, Start::zero);
        vector("dt_bias", widths_.heads, Start::dt_bias);
        vector("a_log", widths_.heads, Start::a_log);
        vector("d", widths_.heads, Start::one);
        vector("gated_norm.gain", model_.mamba.d_inner, Start::one);
        return matrix("out_proj.weight", d, model_.mamba.d_inner, Start::scaled_normal);
      case '*':
        matrix("qkv.weight", widths_.qkv, d, Start::normal);
        return matrix("proj.weight", d, widths_.attention, Start::scaled_normal);
      case '-':
        matrix("fc1.weight", widths_.fc1, d, Start::normal);
        return matrix("fc2.weight", d, model_.mlp.hidden, Start::scaled_normal);
      case 'E':
        return moe(model_.moe.experts, d);
      default:
        throw std::invalid_argument(std::string("the oracle has no layer ") + symbol);
    }
  }

  void moe(std::int64_t experts, std::int64_t d) {
    matrix("router.weight", experts, d, Start::router);
    matrix("experts.fc1.weight", experts * widths_.expert_fc1, d, Start::normal);
    matrix("experts.fc2.weight", experts * d, model_.moe.hidden, Start::scaled_normal);
    if (model_.moe.shared_hidden == 0) return;
    matrix("shared.fc1.weight", widths_.shared_fc1, d, Start::normal);
    matrix("shared.fc2.weight", d, model_.moe.shared_hidden, Start::scaled_normal);
  }

  const Scenario::Model& model_;
  Widths widths_;
  Layout layout_;
  int layer_ = -1;
};

}  // namespace

Layout make_layout(const Scenario::Model& model) { return Builder(model).build(); }

}  // namespace lockstep::oracle
