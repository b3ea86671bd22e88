// Small scenarios and documents for the tests of the oracle.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "oracle/arithmetic/philox.h"
#include "oracle/oracle.h"

namespace lockstep::oracle {

// Numbers in [-1, 1), a function of the seed alone.
class Draws {
 public:
  explicit Draws(std::uint32_t seed) : seed_(seed) {}
  double next() {
    const PhiloxCounter words = philox(seed_, 1, {count_++, 0, 0, 0});
    return static_cast<double>(words[0]) * 0x1p-31 - 1.0;
  }
  std::int32_t below(std::int32_t n) { return static_cast<std::int32_t>((next() + 1.0) * 0.5 * n); }

 private:
  std::uint32_t seed_, count_ = 0;
};

// Documents of these lengths; a document's last token has no target, and every fifth target is
// masked.
inline Microbatch documents_of(const std::vector<std::int64_t>& lengths, std::int64_t vocab,
                               std::uint32_t seed) {
  Draws numbers(seed);
  Microbatch microbatch;
  for (const std::int64_t length : lengths) {
    Document document;
    document.number = static_cast<std::int32_t>(microbatch.documents.size());
    for (std::int64_t t = 0; t < length; ++t)
      document.tokens.push_back(numbers.below(static_cast<std::int32_t>(vocab)));
    for (std::int64_t t = 0; t < length; ++t) {
      const bool masked = t + 1 == length || t % 5 == 3;
      document.targets.push_back(masked ? -1 : document.tokens[t + 1]);
    }
    microbatch.documents.push_back(document);
  }
  return microbatch;
}

inline std::int64_t count_targets(const StepData& data) {
  std::int64_t count = 0;
  for (const Microbatch& microbatch : data.microbatches) {
    for (const Document& document : microbatch.documents) {
      for (const std::int32_t target : document.targets) count += target >= 0 ? 1 : 0;
    }
  }
  return count;
}

inline StepData step_of(const std::vector<std::vector<std::int64_t>>& lengths, std::int64_t vocab,
                        std::uint32_t seed) {
  StepData data;
  for (const std::vector<std::int64_t>& one : lengths)
    data.microbatches.push_back(documents_of(one, vocab, ++seed));
  data.targets = count_targets(data);
  return data;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline const Tensor& tensor(const MicrobatchResult& result, const std::string& name) {
  for (const Tensor& one : result.activations) {
    if (one.name == name) return one;
  }
  throw std::out_of_range("no tensor " + name);
}

// Token losses of each document of a step with 50 targets, by its number.
inline std::map<int, std::vector<float>> document_losses(const Scenario& scenario,
                                                         const Microbatch& microbatch,
                                                         const Options& options = {}) {
  Oracle oracle(scenario, options);
  const StepResult result = oracle.step(0, {{microbatch}, 50});
  const Tensor& all = tensor(result.microbatches[0], "token_loss");
  std::map<int, std::vector<float>> by_number;
  std::int64_t row = 0;
  for (const Document& document : microbatch.documents) {
    const auto length = static_cast<std::int64_t>(document.tokens.size());
    by_number[document.number].assign(all.values.begin() + row, all.values.begin() + row + length);
    row += slot_rows(length, scenario.data.gaps, scenario.data.align);
  }
  return by_number;
}

}  // namespace lockstep::oracle
