// The operands of fp8 numerics in a model, and the exponents by which a pass quantises them
// (arithmetic.md 5.1 and 5.5).
#pragma once

#include <string>
#include <vector>

#include "oracle/arithmetic/fp8_scaling.h"
#include "oracle/model/written.h"
#include "scenarios/fp8.h"

namespace lockstep::oracle {

enum class Fp8Role : std::uint8_t { x, weight, dy };

// Numbers from 0 over the operands that exist, as the digest counts them: layers ascending, in a
// layer the words in the order of 5.1, in a word X of all experts, then W, then dY.
class Fp8Operands {
 public:
  explicit Fp8Operands(const Scenario::Model& model);

  std::size_t size() const { return roles_.size(); }
  // "layers.2.mlp_fc1.x" of one that has no experts.
  std::string name(std::size_t number) const;
  int layer(std::size_t number) const { return word_of(number).layer; }
  // `expert` is 0 where the word has no experts. The word must be one of the layer.
  std::size_t number(int layer, Fp8Layer word, Fp8Role role, std::int64_t expert) const;
  const Fp8Type& type(std::size_t number) const {
    return roles_[number] == Fp8Role::dy ? kE5m2 : kE4m3;
  }

 private:
  struct Word {
    int layer;
    Fp8Layer word;
    std::int64_t experts;
    std::size_t first;
  };
  const Word& word_of(std::size_t number) const;
  std::vector<Word> words_;
  std::vector<Fp8Role> roles_;
};

// How the operands of one pass are quantised, and what was seen of them. Used by fp8 numerics only.
struct Fp8Pass {
  const Fp8Operands& operands;
  const std::vector<Fp8Scaling>* delayed;  // None: each operand by its own amax.
  bool measures;  // Whether an amax is taken: not in an evaluation by `delayed`.
  Written* left;  // Takes what the backward pass leaves: amax and exponent of each dY; may be null.
  std::vector<std::uint32_t> amaxes = {};  // By operand, the largest of the pass; 0 at first.
  std::string failure = {};                // The first operand with an Inf or a NaN.
};

}  // namespace lockstep::oracle
