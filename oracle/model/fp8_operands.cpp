#include "oracle/model/fp8_operands.h"

#include <map>
#include <stdexcept>

#include "scenarios/schema/words.h"

namespace lockstep::oracle {
namespace {

const std::map<char, std::vector<Fp8Layer>>& words_of_symbols() {
  using enum Fp8Layer;
  static const std::map<char, std::vector<Fp8Layer>> words{
      {'*', {qkv_linear, attn_proj}},
      {'-', {mlp_fc1, mlp_fc2}},
      {'M', {mamba_in_proj, mamba_out_proj}},
      {'E', {expert_fc1, expert_fc2, shared_fc1, shared_fc2}}};
  return words;
}

}  // namespace

Fp8Operands::Fp8Operands(const Scenario::Model& model) {
  for (std::size_t layer = 0; layer < model.pattern.size(); ++layer) {
    for (const Fp8Layer word : words_of_symbols().at(model.pattern[layer])) {
      if (!has_fp8_layer(model, word)) continue;
      const bool is_expert = word == Fp8Layer::expert_fc1 || word == Fp8Layer::expert_fc2;
      const std::int64_t experts = is_expert ? model.moe.experts : 1;
      words_.push_back({static_cast<int>(layer), word, experts, roles_.size()});
      for (const Fp8Role role : {Fp8Role::x, Fp8Role::weight, Fp8Role::dy})
        roles_.insert(roles_.end(), experts, role);
    }
  }
}

std::size_t Fp8Operands::number(int layer, Fp8Layer word, Fp8Role role, std::int64_t expert) const {
  for (const Word& one : words_) {
    if (one.layer == layer && one.word == word)
      return one.first + static_cast<int>(role) * one.experts + expert;
  }
  throw std::logic_error("the layer has no such fp8 product");
}

const Fp8Operands::Word& Fp8Operands::word_of(std::size_t number) const {
  std::size_t last = 0;
  while (last + 1 < words_.size() && words_[last + 1].first <= number) ++last;
  return words_.at(last);
}

std::string Fp8Operands::name(std::size_t number) const {
  const Word& word = word_of(number);
  const char* const roles[] = {"x", "w", "dy"};
  return "layers." + std::to_string(word.layer) + "." + lockstep::word(word.word) + "." +
         roles[static_cast<int>(roles_[number])];
}

}  // namespace lockstep::oracle
