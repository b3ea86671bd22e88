#include "harness/generate/rare.h"

#include <algorithm>
#include <bit>
#include <string>

#include "harness/generate/parts.h"
#include "scenarios/documents/layout.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostExperts = 256;        // model.moe.experts of the schema.
constexpr std::int64_t kMostVocabulary = 262144;  // model.vocab.

void narrow_layers(Scenario::Model& m) {
  m.hidden = 8;
  m.attention.kv_heads = 1;
  m.attention.heads = std::min<std::int64_t>(m.attention.heads, 2);
  m.attention.head_dim = std::min<std::int64_t>(m.attention.head_dim, 6);
  m.mamba.groups = 1;
  m.mamba.head_dim = std::min<std::int64_t>(m.mamba.head_dim, 4);
  m.mamba.d_inner = 2 * m.mamba.head_dim;
  m.mamba.state = std::min<std::int64_t>(m.mamba.state, 5);
  m.mlp.hidden = std::min<std::int64_t>(m.mlp.hidden, 8);
  m.moe.hidden = std::min<std::int64_t>(m.moe.hidden, 5);
  m.moe.shared_hidden = std::min<std::int64_t>(m.moe.shared_hidden, 8);
}

void few_experts(Scenario::Model::Moe& m) {
  m.experts = std::min<std::int64_t>(m.experts, 4);
  m.top_k = std::min(m.top_k, m.experts);
}

// One or two tokens each, so that a pack holds many. The first has a target.
MicrobatchLengths short_documents(Choices& c, const Scenario& s, std::int64_t count) {
  MicrobatchLengths list{2};
  std::int64_t rows = slot_rows(2, s.data.gaps, s.data.align);
  while (std::ssize(list) < count && rows < s.data.pack_length) {
    const std::int64_t left = s.data.pack_length - rows - (count - std::ssize(list));
    list.push_back(left > 0 && c.one_in(4) ? 2 : 1);
    rows += slot_rows(list.back(), s.data.gaps, s.data.align);
  }
  return list;
}

}  // namespace

void restrict_to(RareSize rare, Swarm& s) {
  s.rare = rare;
  s.late_copies = s.many_steps = s.many_microbatches = s.many_ranks = false;
  s.long_packs = s.truncation = s.wide = s.distribution = s.constants = s.gaps = false;
  s.few_steps = true;
  switch (rare) {
    case RareSize::many_documents:
      s.dropout = s.buckets = true;
      break;
    case RareSize::buckets_at_powers_of_two:
      s.buckets = true;
      break;
    case RareSize::recapture_under_a_limit:
      s.buckets = s.recapture = true;
      s.few_steps = false;
      break;
    case RareSize::evaluation_with_buckets:
      s.buckets = s.evaluation = true;
      s.few_steps = false;
      break;
    case RareSize::ends_of_the_experts:
      s.experts = true;
      break;
    case RareSize::none:
    case RareSize::many_layers:
    case RareSize::ends_of_the_vocabulary:
      break;
  }
}

void deepen(Choices& c, std::string& pattern) {
  const std::string symbols = pattern;
  // As many graphs need more, since a layer of attention is one block with the layer behind it.
  const std::int64_t layers = c.one_in(2) ? c.between(112, 128) : c.between(65, 80);
  while (std::ssize(pattern) < layers)
    pattern.insert(c.draw(pattern.size() + 1), 1, symbols[c.draw(symbols.size())]);
}

void draw_rare_model(Choices& c, RareSize rare, Scenario::Model& m) {
  switch (rare) {
    case RareSize::many_layers:
      narrow_layers(m);
      few_experts(m.moe);
      m.vocab = std::min<std::int64_t>(m.vocab, 16);
      // A row of zeros, which dropout makes, would raise gradients by 1 / sqrt(norm_eps) a layer.
      m.norm_eps = 1;
      return;
    case RareSize::many_documents:
      narrow_layers(m);
      few_experts(m.moe);
      // Each of two words has more rows than a block of a sum.
      m.vocab = c.one_in(2) ? 2 : std::min<std::int64_t>(m.vocab, 64);
      return;
    case RareSize::ends_of_the_vocabulary:
      narrow_layers(m);
      few_experts(m.moe);
      if (c.one_in(3)) {  // Rows of a softmax are summed in pieces.
        m.vocab = (std::int64_t{1} << c.between(7, 13)) * c.between(1, 3) + c.between(0, 2) - 1;
        return;
      }
      m.vocab = c.pick<std::int64_t>(
          {2, 2, 3, 65'535, 65'537, 100'000, 131'072, kMostVocabulary - 1, kMostVocabulary});
      return;
    case RareSize::ends_of_the_experts:
      m.hidden = std::min<std::int64_t>(m.hidden, 32);
      m.moe.experts = c.pick<std::int64_t>({2, kMostExperts, kMostExperts - 1, 129});
      m.moe.top_k = std::min(m.moe.experts, c.pick<std::int64_t>({2, 1, 8, 16}));
      m.moe.hidden = std::min<std::int64_t>(m.moe.hidden, 5);
      return;
    case RareSize::none:
    case RareSize::buckets_at_powers_of_two:
    case RareSize::recapture_under_a_limit:
    case RareSize::evaluation_with_buckets:
      return;
  }
}

MicrobatchLengths draw_rare_documents(Choices& c, RareSize rare, const Scenario& s) {
  if (rare == RareSize::many_documents)
    return short_documents(c, s, c.between(256, std::min<std::int64_t>(s.data.pack_length, 400)));
  return short_documents(c, s, (std::int64_t{1} << c.between(1, 6)) + c.between(0, 2) - 1);
}

std::vector<std::int64_t> draw_rare_buckets(Choices& c, std::int64_t around, std::int64_t fewest) {
  const auto number = static_cast<std::uint64_t>(std::max<std::int64_t>(around, 2));
  const auto power = static_cast<std::int64_t>(std::bit_floor(number + 1));
  std::vector<std::int64_t> buckets;
  for (const std::int64_t one : {power - 1, power, power + 1}) {
    if (!c.one_in(3)) buckets.push_back(one);
  }
  if (buckets.empty()) buckets = {power};
  while (buckets.back() < fewest) buckets.push_back(2 * buckets.back());
  return buckets;
}

}  // namespace lockstep
