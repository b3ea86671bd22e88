// Layers and their sizes.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "harness/generate/parts.h"

namespace lockstep {
namespace {

std::string draw_pattern(Choices& c, const Swarm& swarm) {
  std::vector<char> symbols;
  if (swarm.mlp) symbols.push_back('-');
  if (swarm.attention) symbols.push_back('*');
  if (swarm.mamba) symbols.push_back('M');
  if (swarm.experts) symbols.push_back('E');
  std::string pattern(symbols.begin(), symbols.end());  // Each kind once.
  const auto insert = [&](std::size_t count, char symbol) {
    pattern.insert(c.draw(pattern.size() + 1), count, symbol);
  };
  if (swarm.late_copies) insert(2, 'E');
  // More of the kinds, anywhere.
  while (pattern.size() < 6 && c.one_in(3)) insert(1, c.pick(symbols));
  if (swarm.rare == RareSize::many_layers) deepen(c, pattern);
  return pattern;
}

void draw_experts(Choices& c, Scenario::Model::Moe& m) {
  m.experts = c.pick<std::int64_t>({4, 2, 3, 7, 16, 4, 3, 130});
  m.top_k = std::min(m.experts, c.pick<std::int64_t>({2, 1, 3, 5}));
  m.hidden = c.pick<std::int64_t>({8, 1, 5, 24});
  // Many and wide would be most of the weights.
  if (m.experts > 16) m.hidden = std::min<std::int64_t>(m.hidden, 8);
  m.shared_hidden = c.one_in(3) ? c.pick<std::int64_t>({8, 1, 17}) : 0;
  m.router = c.one_in(2) ? Router::sigmoid : Router::softmax;
  m.expert_bias = m.router == Router::sigmoid && c.one_in(2);
  m.aux_loss = Ratio{c.pick<std::int64_t>({0, 10'000, 1'000'000})};
  m.z_loss = Ratio{c.pick<std::int64_t>({0, 1'000, 1'000'000})};
  m.capacity_factor = Ratio{c.pick<std::int64_t>({2'000'000, 1'000'000, 1'250'000, 300'000, 1})};
  if (c.one_in(3)) m.capacity_factor.reset();
  m.pad_to_capacity = m.capacity_factor && !c.one_in(3);
  m.host_sync = !m.pad_to_capacity && c.one_in(3);
}

void up_to(std::int64_t& width, std::int64_t step) { width = (width + step - 1) / step * step; }

// Sizes for which kernels have ways of their own, and the ends of ranges.
void widen(Choices& c, Scenario::Model& m) {
  m.attention.head_dim = c.pick<std::int64_t>({64, 128, 32});
  m.attention.kv_heads = c.pick<std::int64_t>({1, 2, 3, 4});
  m.attention.heads = m.attention.kv_heads * c.between(1, 2);
  m.mamba.groups = c.pick<std::int64_t>({1, 2, 4});
  m.mamba.head_dim = m.mamba.groups == 4 ? 32 : c.pick<std::int64_t>({64, 32, 128});
  m.mamba.d_inner = m.mamba.head_dim * m.mamba.groups;
  m.mamba.state = c.pick<std::int64_t>({128, 64, 256});
  m.mamba.conv_width = c.pick<std::int64_t>({4, 6, 8});
  m.mamba.chunk = c.pick<std::int64_t>({64, 128, 256});
  m.mlp.hidden = c.pick<std::int64_t>({256, 24, 520});
  m.hidden = std::min<std::int64_t>(m.hidden, 48);
  if (has_experts(m))
    m.moe.top_k = std::min<std::int64_t>(m.moe.experts, c.pick<std::int64_t>({2, 1, 4, 8, 16}));
}

// Long packs of a small model: rows are what such a case is about.
void narrow(Scenario::Model& m) {
  m.hidden = std::min<std::int64_t>(m.hidden, 32);
  m.vocab = std::min<std::int64_t>(m.vocab, 64);
  m.mlp.hidden = std::min<std::int64_t>(m.mlp.hidden, 24);
}

// Dropout makes rows of zeros, which stay zero from layer to layer. Backwards each norm multiplies
// their gradients by 1 / sqrt(norm_eps), and a layer of Mamba has two norms. With learning rates of
// this generator weights are near 1 at most, so what norms make of them must stay below 1e34.
double least_norm_eps(const Scenario::Model& m) {
  const double norms =
      std::ssize(m.pattern) + std::ranges::count(m.pattern, 'M') + 1;  // And the last one.
  return m.dropout == Ratio{} ? 0 : std::pow(10.0, -2 * 34 / norms);
}

void draw_model_constants(Choices& c, Scenario::Model& m) {
  m.norm_eps = c.pick<double>({1.0e-5, 1.0e-8, 1.0e-6, 1.0e-3, 1});
  for (const double larger : {1.0e-6, 1.0e-5}) {
    if (m.norm_eps < least_norm_eps(m)) m.norm_eps = larger;
  }
  m.attention.rope_base = c.pick<double>({10000, 1.5, 2, 100, 500'000, 1.0e8});
}

}  // namespace

void widen_for_bf16(Scenario::Model& m) {
  const std::int64_t mamba_heads = m.mamba.d_inner / m.mamba.head_dim;
  for (std::int64_t* width :
       {&m.attention.head_dim, &m.mamba.head_dim, &m.mamba.state, &m.mamba.chunk}) {
    up_to(*width, 16);
  }
  m.mamba.d_inner = mamba_heads * m.mamba.head_dim;
  for (std::int64_t* width :
       {&m.hidden, &m.vocab, &m.mlp.hidden, &m.moe.hidden, &m.moe.shared_hidden}) {
    up_to(*width, 8);
  }
}

void draw_model(Choices& c, const Swarm& swarm, Scenario::Model& m) {
  m.pattern = draw_pattern(c, swarm);
  m.hidden = c.pick<std::int64_t>({16, 8, 32, 48, 136});
  m.vocab = c.pick<std::int64_t>({16, 8, 64, 130, 1030});
  if (swarm.odd_widths) {
    m.hidden += c.between(0, 3);
    m.vocab += c.between(0, 3);
  }
  m.tied_embedding = swarm.tied;
  if (swarm.dropout)
    m.dropout = Ratio{c.pick<std::int64_t>({500'000, 100'000, 900'000, c.between(1, 899'999)})};
  m.attention.kv_heads = c.between(1, 2);
  m.attention.heads = m.attention.kv_heads * c.between(1, 3);
  m.attention.head_dim = c.pick<std::int64_t>({4, 2, 6, 16, 34});
  m.mamba.groups = c.between(1, 2);
  m.mamba.head_dim = c.pick<std::int64_t>({4, 1, 3, 8, 16});
  m.mamba.d_inner = m.mamba.head_dim * m.mamba.groups * c.between(1, 3);
  m.mamba.state = c.pick<std::int64_t>({4, 1, 5, 16});
  m.mamba.conv_width = c.between(1, 5);
  m.mamba.chunk = c.pick<std::int64_t>({4, 1, 3, 16, 64});
  m.mlp.hidden = c.pick<std::int64_t>({8, 1, 24, 130});
  m.mlp.activation = swarm.swiglu ? MlpActivation::swiglu : MlpActivation::squared_relu;
  if (has_experts(m)) draw_experts(c, m.moe);
  if (swarm.wide) widen(c, m);
  if (swarm.long_packs) narrow(m);
  if (swarm.constants) draw_model_constants(c, m);
  draw_rare_model(c, swarm.rare, m);
  if (swarm.cudnn && m.pattern.find('*') != std::string::npos)
    m.core_attention = CoreAttention::cudnn;
  if (swarm.bf16) widen_for_bf16(m);
  if (swarm.fp8) widen_for_fp8(m);
}

}  // namespace lockstep
