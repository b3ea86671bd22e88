#include "harness/bench/model.h"

namespace lockstep {
namespace {

Scenario hybrid() {
  Scenario s;
  s.numerics = {Numerics::bf16};
  s.model.pattern = "M-M*-M-M*-";
  s.model.attention = {.heads = 16, .kv_heads = 4, .head_dim = 128, .rope_base = 10000};
  s.model.mamba = {
      .d_inner = 4096, .head_dim = 64, .groups = 8, .state = 128, .conv_width = 4, .chunk = 128};
  s.data.kind = DataKind::distribution;
  s.data.distribution.shape = Shape::lognormal;
  s.data.distribution.fill = {1'000'000};
  s.data.distribution.seed = 7;
  s.training.microbatches = 4;
  s.training.in_flight = 1;
  s.training.optimizer.weight_decay = 0.1;
  s.cuda_graph.max_packed_seqs = {64};
  s.checker.hazards = false;
  s.checker.poison.clear();
  return s;
}

Scenario h1() {
  Scenario s = hybrid();
  s.name = "H1";
  s.model.hidden = 2048;
  s.model.vocab = 32768;
  s.model.mlp.hidden = 8192;
  s.fsdp.unit = {2};  // As much as a transformer layer.
  s.data.pack_length = 8192;
  s.data.distribution.min = 16;
  s.data.distribution.max = 4500;
  s.data.distribution.median = 400;
  return s;
}

Scenario s1() {
  Scenario s = hybrid();
  s.name = "S1";
  s.model.hidden = 512;
  s.model.vocab = 8192;
  s.model.attention.heads = 4;
  s.model.attention.kv_heads = 1;
  s.model.mamba.d_inner = 1024;
  s.model.mlp.hidden = 2048;
  s.fsdp.unit = {4};  // Blocks by themselves exchange a megabyte a time: latency, and the host's
                      // time for each.
  s.data.pack_length = 2048;
  s.data.distribution.min = 4;
  s.data.distribution.max = 1200;
  s.data.distribution.median = 100;
  return s;
}

// Multiply-adds of a layer's products, a token.
double product_weights(const Scenario::Model& m, char symbol) {
  const double hidden = static_cast<double>(m.hidden);
  switch (symbol) {
    case 'M': {
      const double heads = static_cast<double>(m.mamba.d_inner / m.mamba.head_dim);
      const double in =
          static_cast<double>(2 * m.mamba.d_inner + 2 * m.mamba.groups * m.mamba.state) + heads;
      return hidden * (in + static_cast<double>(m.mamba.d_inner));
    }
    case '*':
      return hidden * static_cast<double>((2 * m.attention.heads + 2 * m.attention.kv_heads) *
                                          m.attention.head_dim);
    case '-':
      return hidden * static_cast<double>(m.mlp.hidden) *
             (m.mlp.activation == MlpActivation::swiglu ? 3 : 2);
    default:
      return 0;
  }
}

}  // namespace

std::optional<Scenario> standard_model(const std::string& name) {
  if (name == "H1") return h1();
  if (name == "S1") return s1();
  return {};
}

double causal_pairs(const MicrobatchLengths& lengths) {
  double pairs = 0;
  for (const std::int64_t n : lengths)
    pairs += static_cast<double>(n) * static_cast<double>(n + 1) / 2;
  return pairs;
}

double model_flop(const Scenario& scenario, const std::vector<MicrobatchLengths>& step) {
  const Scenario::Model& m = scenario.model;
  double products = static_cast<double>(m.vocab * m.hidden), scan = 0, attention = 0;
  for (const char symbol : m.pattern) {
    products += product_weights(m, symbol);
    if (symbol == 'M') scan += 7.0 * static_cast<double>(m.mamba.d_inner * m.mamba.state);
    if (symbol == '*')
      attention += 4.0 * static_cast<double>(m.attention.heads * m.attention.head_dim);
  }
  double flop = 0;
  for (const MicrobatchLengths& lengths : step) {
    flop += static_cast<double>(scenario.data.pack_length) * (6 * products + 3 * scan);
    flop += 3 * attention * causal_pairs(lengths);
  }
  return flop;
}

}  // namespace lockstep
