#include "harness/expect/parameter_table.h"

#include <algorithm>

namespace lockstep {
namespace {

struct Widths {
  explicit Widths(const Scenario::Model& m)
      : d(m.hidden),
        qkv((m.attention.heads + 2 * m.attention.kv_heads) * m.attention.head_dim),
        attention(m.attention.heads * m.attention.head_dim),
        inner(m.mamba.d_inner),
        heads(m.mamba.d_inner / m.mamba.head_dim),
        conv(m.mamba.d_inner + 2 * m.mamba.groups * m.mamba.state),
        projected(conv + m.mamba.d_inner + heads),
        gates(m.mlp.activation == MlpActivation::swiglu ? 2 : 1) {}
  std::int64_t d, qkv, attention, inner, heads, conv, projected, gates;
};

class Table {
 public:
  explicit Table(const Scenario& scenario) : model_(scenario.model), width_(model_) {}

  std::vector<ParameterShape> build() {
    add("embedding.weight", -1, model_.vocab, width_.d);
    for (int i = 0; i < static_cast<int>(model_.pattern.size()); ++i)
      add_layer(i, model_.pattern[i]);
    add("final_norm.gain", -1, 1, width_.d);
    if (!model_.tied_embedding) add("head.weight", -1, model_.vocab, width_.d);
    return std::move(list_);
  }

 private:
  void add(std::string name, int layer, std::int64_t rows, std::int64_t cols) {
    list_.push_back({std::move(name), layer, rows, cols});
  }
  void add_layer(int i, char symbol) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    const auto part = [&](const char* name, std::int64_t rows, std::int64_t cols) {
      add(prefix + name, i, rows, cols);
    };
    part("norm.gain", 1, width_.d);
    if (symbol == 'M') {
      part("in_proj.weight", width_.projected, width_.d);
      part("conv.weight", width_.conv, model_.mamba.conv_width);
      part("conv.bias", 1, width_.conv);
      part("dt_bias", 1, width_.heads);
      part("a_log", 1, width_.heads);
      part("d", 1, width_.heads);
      part("gated_norm.gain", 1, width_.inner);
      part("out_proj.weight", width_.d, width_.inner);
    } else if (symbol == '*') {
      part("qkv.weight", width_.qkv, width_.d);
      part("proj.weight", width_.d, width_.attention);
    } else if (symbol == '-') {
      part("fc1.weight", width_.gates * model_.mlp.hidden, width_.d);
      part("fc2.weight", width_.d, model_.mlp.hidden);
    } else {
      part("router.weight", model_.moe.experts, width_.d);
      part("experts.fc1.weight", model_.moe.experts * width_.gates * model_.moe.hidden, width_.d);
      part("experts.fc2.weight", model_.moe.experts * width_.d, model_.moe.hidden);
      if (model_.moe.shared_hidden == 0) return;
      part("shared.fc1.weight", width_.gates * model_.moe.shared_hidden, width_.d);
      part("shared.fc2.weight", width_.d, model_.moe.shared_hidden);
    }
  }

  const Scenario::Model& model_;
  Widths width_;
  std::vector<ParameterShape> list_;
};

bool saves(const Scenario::Model& model, Recompute module) {
  return std::find(model.recompute.begin(), model.recompute.end(), module) == model.recompute.end();
}

// Columns that one layer stores a row.
std::int64_t stored_columns(const Scenario::Model& model, const Widths& width, char symbol) {
  const std::int64_t norm = saves(model, Recompute::layernorm) ? width.d : 0;
  const std::int64_t outside = norm + width.d + 1;  // norm.out, norm.rstd, out
  const std::int64_t common = outside + width.d;    // proj, which no whole module saves
  switch (symbol) {
    case 'M':
      if (!saves(model, Recompute::mamba)) return outside;
      return common + width.projected + width.conv + 2 * width.inner + model.mamba.groups;
    case '*':
      if (!saves(model, Recompute::core_attn)) return common + width.qkv;
      return common + width.qkv + width.attention + model.attention.heads;
    case '-':
      if (!saves(model, Recompute::mlp)) return outside;
      return common + (width.gates + saves(model, Recompute::mlp_act)) * model.mlp.hidden;
    default:
      if (!saves(model, Recompute::moe)) return outside;
      return common +
             model.moe.top_k * (width.gates + 1 + saves(model, Recompute::moe_act)) *
                 model.moe.hidden +
             model.moe.experts;
  }
}

}  // namespace

std::vector<ParameterShape> parameter_table(const Scenario& scenario) {
  return Table(scenario).build();
}

std::int64_t activation_elements(const Scenario& scenario) {
  const Widths width(scenario.model);
  // embedding, final norm, rstd, logits, loss
  std::int64_t columns = 2 * width.d + 1 + scenario.model.vocab + 1;
  for (const char symbol : scenario.model.pattern)
    columns += stored_columns(scenario.model, width, symbol);
  return columns * scenario.data.pack_length;
}

}  // namespace lockstep
